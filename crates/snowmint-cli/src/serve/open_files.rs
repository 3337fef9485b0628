//! Open files: every connection is one. Systems allow a process few at first and many when it asks.

use snowmint_server::Settings;

/// Takes all the open files that the system lets this process have, and no more connections than fit into them.
#[cfg(unix)]
pub(super) fn fit(settings: &mut Settings) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems name no hard limit and have one: what was there goes on.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
    let limit = if raised.is_ok() { maximum } else { current };
    let asked = settings.max_connections;
    if let Some(limit) = limit.filter(|limit| settings.fit_open_files(*limit)) {
        tracing::warn!(
            asked,
            max_connections = settings.max_connections,
            open_files = limit,
            "connection limit lowered to the open files that the system allows: raise them (ulimit -n, LimitNOFILE=), or \
             lower --max-connections"
        );
    }
}

/// Nothing to ask for.
#[cfg(not(unix))]
pub(super) fn fit(_: &mut Settings) {}
