//! The protocols of the service, and how a connection of one was admitted.

use crate::limits::PROTOCOLS;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Resp,
    Thrift,
    Grpc,
    /// Health and metrics on a port of their own.
    Probe,
}

impl Protocol {
    pub(crate) const ALL: [Self; PROTOCOLS] = [Self::Http, Self::Resp, Self::Thrift, Self::Grpc, Self::Probe];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Thrift => "thrift",
            Self::Grpc => "grpc",
            Self::Probe => "probe",
        }
    }
}

/// How a connection was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Within the connection limit.
    Client,
    /// Beyond the limit, on one of a few reserved connections: for health and metrics, and for errors.
    Reserved,
    /// On the port for health and metrics, which has a limit of its own.
    Probe,
}

impl Admission {
    /// Returns the protocol under which a request is counted. Requests on the port for health and metrics are
    /// counted separately.
    pub(crate) const fn protocol(self, spoken: Protocol) -> Protocol {
        if matches!(self, Self::Probe) { Protocol::Probe } else { spoken }
    }
}
