// What the optimizer is given anew for each step: `StepNumbers` in step.rs.
struct StepNumbers {
    f64 rate;
    f64 keep;
    f64 corrected_rate;
    f64 root;
};
