//! The error of the operating system's random numbers, which tags and seeds come from.

/// The operating system returned no random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system returned no random bits")]
pub struct RandomnessError(#[source] getrandom::Error);

impl RandomnessError {
    pub(crate) fn of<T>(random: Result<T, getrandom::Error>) -> Result<T, Self> {
        random.map_err(Self)
    }
}
