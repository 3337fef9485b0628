//! What a connection counts for itself between two writes: adding up for every command would cost more than parsing.

use std::sync::Arc;

use crate::metrics::{Metrics, Protocol};
use crate::mint::Namespace;

/// What a connection counts for itself until it writes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) succeeded: u64,
    issued: u64,
    namespace: Option<Arc<Namespace>>,
}

impl Tally {
    #[inline]
    pub(super) fn issued(&mut self, metrics: &Metrics, namespace: &Arc<Namespace>, ids: u64) {
        if self.namespace.as_ref().is_none_or(|last| !Arc::ptr_eq(last, namespace)) {
            self.add_up(metrics);
            self.namespace = Some(Arc::clone(namespace));
        }
        self.issued += ids;
        self.succeeded += 1;
    }

    pub(super) fn add_up(&mut self, metrics: &Metrics) {
        if self.succeeded > 0 {
            metrics.succeeded(Protocol::Resp, std::mem::take(&mut self.succeeded));
        }
        if let (1.., Some(namespace)) = (self.issued, &self.namespace) {
            namespace.add_issued(std::mem::take(&mut self.issued));
        }
    }
}
