//! How far a store reaches: which processes it coordinates.

use std::fmt;

/// Which processes see the records of a store. Ids are unique among those, and only among those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreReach {
    /// This process alone.
    Process,
    /// The processes of one machine that use one file.
    Machine,
    /// Every node that uses the store.
    Network,
}

impl StoreReach {
    /// The reach of the store that a URL names.
    ///
    /// # Examples
    ///
    /// ```
    /// use snowmint_store::StoreReach;
    /// assert_eq!(StoreReach::of_url("sqlite:/var/lib/snowmint/leases.db"), StoreReach::Machine);
    /// assert_eq!(StoreReach::of_url("etcd://a,b,c"), StoreReach::Network);
    /// ```
    pub fn of_url(url: &str) -> Self {
        match url.split_once(':') {
            Some(("memory", _)) => Self::Process,
            Some(("sqlite", _)) => Self::Machine,
            _ => Self::Network,
        }
    }
}

impl fmt::Display for StoreReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "this process alone",
            Self::Machine => "processes of this machine that use this file",
            Self::Network => "every node that uses this store",
        })
    }
}
