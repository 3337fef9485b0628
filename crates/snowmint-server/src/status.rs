//! The table of failures: one row for each kind, one column for what each protocol answers. A protocol with
//! codes of its own adds a column; Thrift sends RESP's words. Metrics use the same names as answers.

use snowmint_admin::AdminErrorKind;
use tonic::Code;

/// The answer to one kind of failure, in each protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The name in metrics, and the last part of the problem type's URN.
    pub name: &'static str,
    /// The HTTP status code.
    pub http: u16,
    /// The title of the HTTP problem document.
    pub title: &'static str,
    /// The first word of the RESP error. `TRYAGAIN` is known to Redis clients; some of them retry by
    /// themselves.
    pub resp: &'static str,
    /// The gRPC code.
    pub grpc: Code,
}

/// Defines [`ErrorKind`] and the table.
macro_rules! error_kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $http:literal, $title:literal, $resp:literal, $grpc:ident;)*) => {
        /// A kind of failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Returns the row of this kind.
            pub const fn status(self) -> Status {
                match self {
                    $(Self::$kind => Status {
                        name: $name,
                        http: $http,
                        title: $title,
                        resp: $resp,
                        grpc: Code::$grpc,
                    },)*
                }
            }
        }
    };
}

error_kinds! {
    /// The name is valid, but no namespace of this server has it.
    UnknownNamespace: "unknown-namespace", 404, "Unknown namespace", "NONAMESPACE", NotFound;
    /// The name is not a valid namespace name.
    BadNamespace: "bad-namespace", 400, "Invalid namespace name", "ERR", InvalidArgument;
    /// The count is not a number, or out of range.
    BadCount: "bad-count", 400, "Invalid count", "ERR", InvalidArgument;
    /// The text is not an id, or not one of the given namespace or layout.
    BadId: "bad-id", 400, "Invalid id", "ERR", InvalidArgument;
    /// The node holds no lease, or its store does not answer.
    NotReady: "not-ready", 503, "Not ready", "NOTREADY", Unavailable;
    /// The clock went back further than the rule allows.
    ClockBehind: "clock-behind", 503, "Clock went back", "CLOCKBEHIND", Unavailable;
    /// The ids could not be made within the time that a request may wait.
    Busy: "busy", 503, "Too many ids requested", "TRYAGAIN", ResourceExhausted;
    /// The layout has no timestamps left.
    LayoutEnded: "layout-ended", 500, "Layout has ended", "LAYOUTENDED", FailedPrecondition;
    /// The limit of namespaces that requests may create is reached.
    TooManyNamespaces: "too-many-namespaces", 403, "Too many namespaces", "ERR", ResourceExhausted;
    /// The namespace is not a counter that INCR can increment, or its ids are not integers.
    NotCounting: "not-counting", 400, "Not a counter", "WRONGTYPE", FailedPrecondition;
    /// The path serves namespaces of another scheme.
    WrongScheme: "wrong-scheme", 400, "Wrong scheme for this path", "ERR", FailedPrecondition;
    /// The namespace has used all its numbers.
    NumbersEnded: "numbers-ended", 500, "Numbers used up", "NUMBERSENDED", FailedPrecondition;
    /// No path or command has this name.
    Unknown: "unknown", 404, "Not found", "ERR", Unimplemented;
    /// The path does not support this method.
    BadMethod: "bad-method", 405, "Method not allowed", "ERR", Unimplemented;
    /// Arguments, parameters or their encoding are invalid.
    BadRequest: "bad-request", 400, "Invalid request", "ERR", InvalidArgument;
    /// The deadline of the request passed before it had its ids.
    Expired: "expired", 504, "Deadline exceeded", "TRYAGAIN", DeadlineExceeded;
    /// The connection limit is reached.
    TooManyClients: "too-many-clients", 503, "Too many connections", "ERR", Unavailable;
    /// The answers that clients have not read use all the memory for answers.
    TooManyUnread: "too-many-unread", 503, "Too many unread answers", "TRYAGAIN", ResourceExhausted;
    /// The request is addressed to a host name that this server does not serve.
    UnknownHost: "unknown-host", 421, "Unknown host", "ERR", PermissionDenied;
    /// The TLS handshake failed, or only one side speaks TLS.
    BadTls: "bad-tls", 400, "TLS required", "ERR", Unauthenticated;
    /// A page of another web site sent the request.
    CrossSite: "cross-site", 403, "Cross-site request", "ERR", PermissionDenied;
    /// The client has sent no valid token. Redis clients know `NOAUTH`.
    Unauthorized: "unauthorized", 401, "Authentication required", "NOAUTH", Unauthenticated;
    /// The token does not have the right, or does not cover the namespace.
    Forbidden: "forbidden", 403, "Forbidden", "NOPERM", PermissionDenied;
    /// The quota of the token is used up for now.
    OverQuota: "over-quota", 429, "Quota exceeded", "TRYAGAIN", ResourceExhausted;
    /// The operation conflicts with the records in the store, and a retry would conflict too.
    Conflict: "conflict", 409, "Conflict with the current state", "ERR", FailedPrecondition;
    /// The change may have taken place: the store did not answer in time.
    OutcomeUnknown: "outcome-unknown", 504, "Outcome unknown", "ERR", DeadlineExceeded;
    /// The record to change was changed in the meantime.
    Changed: "changed", 412, "Changed in the meantime", "ERR", Aborted;
    /// A node still uses what the operation would take away.
    InUse: "in-use", 409, "In use", "ERR", FailedPrecondition;
    /// The store has no record of the worker.
    UnknownWorker: "unknown-worker", 404, "Unknown worker", "ERR", NotFound;
    /// A record of the store is unreadable.
    Unreadable: "unreadable", 500, "Unreadable record", "ERR", DataLoss;
    /// The store is read-only or full until an operator changes that. Nothing was changed.
    StoreNotWritable: "store-not-writable", 500, "Store not writable", "ERR", FailedPrecondition;
    /// The body of the request is too large.
    TooLarge: "too-large", 413, "Request too large", "ERR", InvalidArgument;
    /// The body of the request has another media type.
    BadMediaType: "bad-media-type", 415, "Unsupported media type", "ERR", InvalidArgument;
    /// The first request with this idempotency key is still running.
    KeyInUse: "key-in-use", 409, "Idempotency key in use", "TRYAGAIN", Aborted;
    /// The idempotency key was sent with another request.
    KeyReused: "key-reused", 422, "Idempotency key reused", "ERR", InvalidArgument;
}

impl From<AdminErrorKind> for ErrorKind {
    fn from(kind: AdminErrorKind) -> Self {
        match kind {
            AdminErrorKind::BadRequest => Self::BadRequest,
            AdminErrorKind::UnknownNamespace => Self::UnknownNamespace,
            AdminErrorKind::UnknownWorker => Self::UnknownWorker,
            AdminErrorKind::Forbidden => Self::Forbidden,
            AdminErrorKind::TooManyNamespaces => Self::TooManyNamespaces,
            AdminErrorKind::Conflict => Self::Conflict,
            AdminErrorKind::InUse => Self::InUse,
            AdminErrorKind::Changed => Self::Changed,
            AdminErrorKind::Unreadable => Self::Unreadable,
            AdminErrorKind::StoreNotWritable => Self::StoreNotWritable,
            AdminErrorKind::NotReady => Self::NotReady,
            AdminErrorKind::OutcomeUnknown => Self::OutcomeUnknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroU64;
    use std::time::Duration;

    use snowmint::error::Snippet;
    use snowmint::{GenerateError, Generator, Layout, ManualClock, WorkerId};
    use snowmint_cluster::NextIdError;

    use super::*;
    use crate::mint::MintError;
    use crate::mint::Quota;

    #[test]
    fn every_kind_has_its_status_prefix_and_code() {
        use ErrorKind as Kind;
        let table = [
            (Kind::UnknownNamespace, 404, "NONAMESPACE", Code::NotFound),
            (Kind::BadNamespace, 400, "ERR", Code::InvalidArgument),
            (Kind::BadCount, 400, "ERR", Code::InvalidArgument),
            (Kind::BadId, 400, "ERR", Code::InvalidArgument),
            (Kind::NotReady, 503, "NOTREADY", Code::Unavailable),
            (Kind::ClockBehind, 503, "CLOCKBEHIND", Code::Unavailable),
            (Kind::Busy, 503, "TRYAGAIN", Code::ResourceExhausted),
            (Kind::LayoutEnded, 500, "LAYOUTENDED", Code::FailedPrecondition),
            (Kind::TooManyNamespaces, 403, "ERR", Code::ResourceExhausted),
            (Kind::NotCounting, 400, "WRONGTYPE", Code::FailedPrecondition),
            (Kind::WrongScheme, 400, "ERR", Code::FailedPrecondition),
            (Kind::NumbersEnded, 500, "NUMBERSENDED", Code::FailedPrecondition),
            (Kind::Unknown, 404, "ERR", Code::Unimplemented),
            (Kind::BadMethod, 405, "ERR", Code::Unimplemented),
            (Kind::BadRequest, 400, "ERR", Code::InvalidArgument),
            (Kind::Expired, 504, "TRYAGAIN", Code::DeadlineExceeded),
            (Kind::TooManyClients, 503, "ERR", Code::Unavailable),
            (Kind::TooManyUnread, 503, "TRYAGAIN", Code::ResourceExhausted),
            (Kind::UnknownHost, 421, "ERR", Code::PermissionDenied),
            (Kind::BadTls, 400, "ERR", Code::Unauthenticated),
            (Kind::CrossSite, 403, "ERR", Code::PermissionDenied),
            (Kind::Unauthorized, 401, "NOAUTH", Code::Unauthenticated),
            (Kind::Forbidden, 403, "NOPERM", Code::PermissionDenied),
            (Kind::OverQuota, 429, "TRYAGAIN", Code::ResourceExhausted),
            (Kind::Conflict, 409, "ERR", Code::FailedPrecondition),
            (Kind::OutcomeUnknown, 504, "ERR", Code::DeadlineExceeded),
            (Kind::Changed, 412, "ERR", Code::Aborted),
            (Kind::InUse, 409, "ERR", Code::FailedPrecondition),
            (Kind::UnknownWorker, 404, "ERR", Code::NotFound),
            (Kind::Unreadable, 500, "ERR", Code::DataLoss),
            (Kind::StoreNotWritable, 500, "ERR", Code::FailedPrecondition),
            (Kind::TooLarge, 413, "ERR", Code::InvalidArgument),
            (Kind::BadMediaType, 415, "ERR", Code::InvalidArgument),
            (Kind::KeyInUse, 409, "TRYAGAIN", Code::Aborted),
            (Kind::KeyReused, 422, "ERR", Code::InvalidArgument),
        ];
        assert_eq!(table.map(|(kind, ..)| kind), Kind::ALL);
        for (kind, http, resp, grpc) in table {
            let status = kind.status();
            assert_eq!((status.http, status.resp, status.grpc), (http, resp, grpc), "{kind:?}");
        }
    }

    #[test]
    fn every_kind_has_a_name_and_a_title_in_the_order_of_the_metrics() {
        let mut names = HashSet::new();
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            let Status { name, http, title, resp, grpc } = kind.status();
            assert_eq!(kind as usize, index, "{kind:?}: metrics are indexed by it");
            assert!(names.insert(name), "two kinds have the name {name}");
            assert!((400..600).contains(&http) && !title.is_empty(), "{kind:?}");
            // `Unknown` and `Internal` say nothing, and with `Ok` a client would mistake a failure for an
            // answer.
            assert!(![Code::Ok, Code::Unknown, Code::Internal].contains(&grpc), "{kind:?}");
            assert!(
                resp.bytes().all(|b| b.is_ascii_uppercase()),
                "{kind:?}: a RESP prefix is one upper-case word"
            );
        }
    }

    /// Goal: the command line ends with one exit code, whether an operation fails on a store or on a node.
    #[test]
    fn a_kind_of_admin_error_is_named_alike_on_both_sides() {
        use AdminErrorKind as Kind;
        for kind in [
            Kind::BadRequest,
            Kind::UnknownNamespace,
            Kind::UnknownWorker,
            Kind::Forbidden,
            Kind::TooManyNamespaces,
            Kind::Conflict,
            Kind::InUse,
            Kind::Changed,
            Kind::Unreadable,
            Kind::StoreNotWritable,
            Kind::NotReady,
            Kind::OutcomeUnknown,
        ] {
            let Status { name, http, .. } = ErrorKind::from(kind).status();
            assert_eq!(kind.status(), (name, http), "{kind:?}");
        }
        let bad_tls = format!("urn:snowmint:{}", ErrorKind::BadTls.status().name);
        assert_eq!(
            snowmint_admin::node_reports::BAD_TLS,
            bad_tls,
            "`doctor` knows the answer of a node with TLS"
        );
    }

    fn clock_behind() -> GenerateError {
        let clock = ManualClock::at_unix_ms(1_700_000_000_000);
        let generator = Generator::builder(Layout::TWITTER).worker(WorkerId(0)).build(&clock).unwrap();
        generator.try_next_id().unwrap();
        clock.set_unix_ms(1_600_000_000_000);
        generator.try_next_id().unwrap_err()
    }

    /// Goal: every error of the lease, the generator and the namespaces gets the right status and prefix.
    #[test]
    fn every_mint_error_goes_to_its_row() {
        let name = Snippet::of("x");
        let ms = NonZeroU64::MIN;
        let behind = clock_behind();
        let refused = |refusal| MintError::from_no_id(NextIdError::Refused(refusal), 1, 1);
        let id = "x".parse::<snowmint::Id>().unwrap_err();
        let layout = "x".parse::<Layout>().unwrap_err();
        let quota = Quota::Rate(ms);
        let table: [(MintError, u16, &str); 25] = [
            (MintError::Unauthorized { why: String::new() }, 401, "NOAUTH"),
            (MintError::Forbidden { why: String::new() }, 403, "NOPERM"),
            (MintError::OverQuota { token: name, quota, retry_after: Duration::ZERO }, 429, "TRYAGAIN"),
            (MintError::TooManyAtOnce { token: name, count: 2, quota }, 400, "ERR"),
            (MintError::RunTooLong { count: 3, given: 1 }, 400, "ERR"),
            (MintError::TooFewLeft { name, left: 1, maximum: 2 }, 400, "ERR"),
            (MintError::WrongScheme { name, what: "" }, 400, "ERR"),
            (MintError::TooManyNamespaces { name, limit: 5 }, 403, "ERR"),
            (MintError::NotCounting { name, why: "" }, 400, "WRONGTYPE"),
            (MintError::NotIntegers { name, why: "" }, 400, "WRONGTYPE"),
            (MintError::NumbersEnded { name, maximum: 5 }, 500, "NUMBERSENDED"),
            (MintError::UnknownNamespace { name, known: String::new() }, 404, "NONAMESPACE"),
            (MintError::BadNamespace { name }, 400, "ERR"),
            (MintError::BadCount { value: name, limit: 1 }, 400, "ERR"),
            (MintError::BadId { text: name, why: id.into() }, 400, "ERR"),
            (MintError::NotOfNamespace { text: name, name, why: id.into() }, 400, "ERR"),
            (MintError::BadLayout { layout: name, why: layout.into() }, 400, "ERR"),
            (MintError::from_no_id(NextIdError::NoLease { why: "no store".into() }, 1, 1), 503, "NOTREADY"),
            (refused(GenerateError::LeaseEnded { until_unix_ms: 0 }), 503, "NOTREADY"),
            (refused(GenerateError::Ended), 503, "NOTREADY"),
            (refused(behind), 503, "CLOCKBEHIND"),
            (refused(GenerateError::NotBegun { from_unix_ms: 5, now_unix_ms: 1 }), 503, "CLOCKBEHIND"),
            (refused(GenerateError::Exhausted { retry_after_ms: ms }), 503, "TRYAGAIN"),
            (
                MintError::Busy { count: 1, within: crate::limits::MAX_WAIT, ids_per_second: 1 },
                503,
                "TRYAGAIN",
            ),
            (refused(GenerateError::TimestampOverflow { ended_unix_ms: 0 }), 500, "LAYOUTENDED"),
        ];
        for (error, http, resp) in table {
            let status = error.kind().status();
            assert_eq!((status.http, status.resp), (http, resp), "{error}");
            assert_eq!(
                error.retry_after().is_some(),
                [429, 503].contains(&http),
                "{error}: it says when to retry"
            );
        }
    }
}
