//! The log of refused admin requests: who tried what, and from where.
//!
//! Anyone on the network can cause these lines, so there is at most one a minute for each valid token, and
//! one for all clients without a valid token: a client without a token cannot hide the attempts of one with a
//! token.
//!
//! They are not in the audit log of the store. It keeps a limited number of entries, and attempts would push
//! changes out of it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::access::Identity;
use crate::access::secret::TokenName;
use crate::status::ErrorKind;
use crate::telemetry::access_log;
use crate::telemetry::recurring_problem::RecurringProblem;

/// The refused admin requests of a server. It grows only by the names of valid tokens.
#[derive(Debug, Default)]
pub(crate) struct AdminRefusals(Mutex<HashMap<Option<TokenName>, RecurringProblem>>);

impl AdminRefusals {
    /// Logs an admin request that failed, if it was refused because of its token. `identity` is `None` for a
    /// client that sent no valid token, and `action` the request without its arguments.
    #[cold]
    pub(crate) fn failed(&self, identity: Option<&Identity>, action: &str, kind: ErrorKind, why: &str) {
        if !matches!(kind, ErrorKind::Unauthorized | ErrorKind::Forbidden) {
            return;
        }
        let token = identity.and_then(Identity::token_name);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = all.entry(token.cloned()).or_default().occurred();
        drop(all);
        if let Some(attempts) = attempts {
            let token = token.map_or("-", TokenName::as_str);
            let (action, from) = (access_log::shortened(action), access_log::client());
            tracing::warn!(token, action = &*action, from, error = why, attempts, "admin request refused");
        }
    }
}
