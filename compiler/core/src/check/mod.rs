//! The judges, one file per rule.
