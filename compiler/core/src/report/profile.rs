//! Where the times of a report come from, where they were measured.

use crate::profile::Profile;
use serde::Serialize;

/// The profile behind the times.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProfileReport {
    /// The file.
    pub file: String,
    /// What all times of the report are in.
    pub time_unit: &'static str,
}

impl ProfileReport {
    /// That of a profile.
    pub fn new(profile: &Profile) -> Self {
        Self { file: profile.name().to_owned(), time_unit: "ms" }
    }
}
