//! The schemes of stores: every name that may begin the URL of a store.
//!
//! To add a scheme, add a variant. Each property is a `match` without a wildcard, here, in `visibility.rs`
//! and in `open.rs`, so a variant without its properties does not compile.

/// The kind of a store, as the scheme of its URL names it. Kinds that this build lacks are variants too:
/// their URLs still show who sees their records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreScheme {
    Memory,
    Sqlite,
    Redis,
    Postgres,
    MySql,
    Etcd,
    ZooKeeper,
    Kubernetes,
}

impl StoreScheme {
    /// Every scheme, in the order in which errors list them.
    pub(crate) const ALL: [Self; Self::Kubernetes as usize + 1] = [
        Self::Memory,
        Self::Sqlite,
        Self::Redis,
        Self::Postgres,
        Self::MySql,
        Self::Etcd,
        Self::ZooKeeper,
        Self::Kubernetes,
    ];

    /// Returns the scheme of a URL, or `None` for an unknown one.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        let (name, _) = url.split_once(':')?;
        Self::ALL.into_iter().find(|scheme| scheme.names().contains(&name))
    }

    /// Returns the texts before the first `:` that mean this store. The first one is its name.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["memory"],
            Self::Sqlite => &["sqlite"],
            Self::Redis => &["redis", "rediss", "valkey", "valkeys"],
            Self::Postgres => &["postgres", "postgresql"],
            Self::MySql => &["mysql", "mariadb"],
            Self::Etcd => &["etcd", "etcds"],
            Self::ZooKeeper => &["zookeeper", "zookeepers"],
            Self::Kubernetes => &["kubernetes"],
        }
    }

    /// Returns the form of its URLs, as an error lists it.
    pub(crate) const fn form(self) -> &'static str {
        match self {
            Self::Memory => "memory:",
            Self::Sqlite => "sqlite:PATH",
            Self::Redis => "redis://HOST",
            Self::Postgres => "postgres://HOST/DATABASE",
            Self::MySql => "mysql://HOST/DATABASE",
            Self::Etcd => "etcd://HOST,HOST,HOST",
            Self::ZooKeeper => "zookeeper://HOST,HOST,HOST",
            Self::Kubernetes => "kubernetes:NAMESPACE",
        }
    }

    /// Returns the default port of its servers, or `None` for a store whose URLs name no host.
    const fn port(self) -> Option<u16> {
        match self {
            Self::Redis => Some(6379),
            Self::Postgres => Some(5432),
            Self::MySql => Some(3306),
            Self::Etcd => Some(2379),
            Self::ZooKeeper => Some(2181),
            Self::Memory | Self::Sqlite | Self::Kubernetes => None,
        }
    }

    /// Returns whether this build has the store.
    pub(crate) const fn is_built(self) -> bool {
        match self {
            Self::Memory => cfg!(feature = "memory"),
            Self::Sqlite => cfg!(feature = "sqlite"),
            Self::Redis => cfg!(feature = "redis"),
            Self::Postgres => cfg!(feature = "postgres"),
            Self::MySql => cfg!(feature = "mysql"),
            Self::Etcd => cfg!(feature = "etcd"),
            Self::ZooKeeper => cfg!(feature = "zookeeper"),
            Self::Kubernetes => cfg!(feature = "kubernetes"),
        }
    }
}

/// Returns the name of the store that the scheme of a URL means, also if this build lacks it, and the default
/// port of its servers: `None` for a store whose URLs name no host.
pub fn store_of_scheme(scheme: &str) -> Option<(&'static str, Option<u16>)> {
    let found = StoreScheme::ALL.into_iter().find(|store| store.names().contains(&scheme))?;
    Some((found.names()[0], found.port()))
}

/// Returns what is wrong with a URL whose user or password has an unescaped `/` or `?`. What follows it would
/// be parsed as a path, which logs and errors show.
pub fn unescaped_login(url: &str) -> Option<&'static str> {
    let (_, place) = url.split_once("//")?;
    let end = place.find(['/', '?'])?;
    place[end..].contains('@').then_some(
        "unexpected `@` after the hosts: write `@`, `/` and `?` in a user or password as %40, %2F and %3F",
    )
}

/// Returns the names of the stores that this build has.
pub fn built_stores() -> impl Iterator<Item = &'static str> {
    StoreScheme::ALL.into_iter().filter(|scheme| scheme.is_built()).map(|scheme| scheme.names()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_and_form_leads_to_its_scheme() {
        for (nth, scheme) in StoreScheme::ALL.into_iter().enumerate() {
            assert_eq!(scheme as usize, nth);
            assert_eq!(StoreScheme::of_url(scheme.form()), Some(scheme));
            for name in scheme.names() {
                assert_eq!(StoreScheme::of_url(&format!("{name}:x")), Some(scheme));
            }
        }
        assert_eq!(StoreScheme::of_url("mongodb://h"), None);
        assert_eq!(StoreScheme::of_url("redis"), None);
        assert_eq!(store_of_scheme("valkeys"), Some(("redis", Some(6379))));
        assert_eq!(store_of_scheme("mysq"), None);
    }
}
