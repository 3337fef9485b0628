//! `--start-without-store`: whether this node may go on under the lease that it saved, and what that lease is bound to.

use std::path::Path;

use snowmint::{Clock as _, WallClock};
use snowmint_cluster::{Holder, Pool, SavedLeases};

use super::plan::Plan;
use crate::exit::Failure;
use crate::values::Listen;

/// Locks the data directory.
pub(super) fn open(plan: &Plan) -> Result<SavedLeases, Failure> {
    let origin = format!("{} {}", shown(&plan.store), plan.namespaces.fingerprint());
    SavedLeases::open(Path::new(&plan.data), &origin).map_err(Failure::runtime)
}

/// Whether there is a lease to go on under; the log says why where there is not.
pub(super) fn is_usable(plan: &Plan, saved: &SavedLeases) -> bool {
    let Some(holder) = holder(plan) else { return false };
    let pool = Pool::new(plan.layout, plan.datacenter);
    match saved.usable(&pool, &holder, WallClock.unix_ms()) {
        Ok(None) => false,
        Ok(Some(_)) if saved.served().is_empty() => {
            tracing::info!(
                "the saved lease is not used: this node served no namespace of its layout when the store last answered"
            );
            false
        }
        Ok(Some(_)) => true,
        Err(why) => {
            tracing::warn!("the saved lease is not used: {why}");
            false
        }
    }
}

/// The name of this node, as far as it is known before a port is bound.
fn holder(plan: &Plan) -> Option<Holder> {
    if plan.holder.is_some() {
        return plan.holder.clone();
    }
    let port = [&plan.http, &plan.resp].into_iter().find_map(|listen| match listen {
        Listen::At { port, .. } => Some(*port),
        Listen::Off => None,
    })?;
    (port != 0).then(|| Holder::of_this_host(&port.to_string()))
}

/// The URL of a store without user and password.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    format!("{scheme}://{hosts}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, expected) in [
            ("redis://user:p%40ss@host:6379/1?prefix=x", "redis://host:6379/1?prefix=x"),
            ("etcd://a:1,b:2", "etcd://a:1,b:2"),
            ("postgres://u@h?tls=on", "postgres://h?tls=on"),
            ("sqlite:/var/a@b.db", "sqlite:/var/a@b.db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
