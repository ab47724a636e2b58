//! Every kernel against plain arithmetic in f64.
