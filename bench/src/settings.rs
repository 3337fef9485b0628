//! The settings from the command line.

use std::time::Duration;

/// The duration and the selection of measurements.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A few seconds in total, for CI: figures are rough.
    pub quick: bool,
    /// Only the group of this name, or subjects whose name contains it; baselines always stay.
    pub only: Option<String>,
}

const USAGE: &str = "usage: ids [--quick] [--only NAME]
  --quick      a few seconds, rough figures
  --only NAME  a group (alone, pair, saturated, bulk, call, text), or subjects whose name contains NAME";

impl Settings {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    ///
    /// The usage, for an unknown argument.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => settings.quick = true,
                "--only" => settings.only = Some(arguments.next().ok_or(USAGE)?),
                _ => return Err(format!("{argument} is not known\n{USAGE}")),
            }
        }
        Ok(settings)
    }

    /// Returns the number of rounds, and the time of one subject in a round.
    pub fn rounds(&self) -> (usize, Duration) {
        if self.quick { (5, Duration::from_millis(1)) } else { (31, Duration::from_millis(8)) }
    }

    /// Returns whether to run a group.
    pub fn wants_group(&self, group: &str) -> bool {
        match self.only.as_deref() {
            Some(name) if crate::groups::NAMES.contains(&name) => name == group,
            _ => true,
        }
    }

    /// Returns whether to measure a subject of a group that runs.
    pub fn wants(&self, subject: &str) -> bool {
        match self.only.as_deref() {
            Some(name) if !crate::groups::NAMES.contains(&name) => subject.contains(name),
            _ => true,
        }
    }
}
