//! Limits of what operators, and clients of the admin API, may ask for.

use std::time::Duration;

use snowmint_cluster::namespace::MAX_NAMESPACES;

/// Namespaces of a store that a node serves besides those of its flags and its file. Nodes that add
/// namespaces at the same moment may exceed the limit of the store, each by one batch of create requests;
/// these 1,000 leave room for that.
pub const MAX_SERVED_NAMESPACES: usize = MAX_NAMESPACES + 1_000;
/// Bytes of a request's body.
pub const MAX_BODY: usize = 64 * 1024;
/// Changes in one list of the audit log.
pub const MAX_CHANGES: usize = 1000;
/// Operations that run at once; further ones wait.
pub const OPERATIONS: usize = 8;
/// How long an operation may take, and how long it may wait before it starts.
pub const WITHIN: Duration = Duration::from_secs(20);
/// Operations of tokens for some namespaces that run at once, so that operators always get a turn.
pub const OPERATIONS_OF_SOME: usize = OPERATIONS / 2;
/// Records of namespaces, dropped ones included, in the patterns of a token that is not for all namespaces.
/// At this limit, the token cannot add more.
pub const MAX_OWN_NAMESPACES: usize = 1_000;
/// Namespaces in a store at which only tokens for all namespaces can add more: a tenth of what a store may
/// have is left for them.
pub const MAX_NAMESPACES_OF_ALL: usize = 9_000;
/// Nodes that a request may name.
pub const MAX_NODES: usize = 64;
/// How long a client waits before it retries an operation that failed because of the store.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a change waits until this node serves it, and a change of the node itself for its entry in the
/// audit log.
pub const REFRESH_WITHIN: Duration = Duration::from_secs(3);
