//! `/v1/server`: what this server serves to a client, for the console and for people.

use hyper::Response;
use serde::Serialize;

use crate::access::{Identity, Right};
use crate::http::response::{Body, Problem, json};
use crate::limits::fleet::NAMESPACES;
use crate::mint::{Backend, Namespace};
use crate::state::ServerState;

#[derive(Serialize)]
struct ServerInfo<'a> {
    version: &'static str,
    /// The layout of namespaces without one of their own.
    layout: String,
    datacenter: u32,
    /// The address of the Redis protocol: `host:port`, or `unix:` and a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    resp: Option<&'a str>,
    /// Whether clients need tokens.
    tokens: bool,
    /// Whether this client may administer the node.
    admin: bool,
    /// The namespaces that the client may know, up to 1,000.
    namespaces: Vec<NamespaceInfo<'a>>,
}

#[derive(Serialize)]
struct NamespaceInfo<'a> {
    name: &'a str,
    scheme: &'static str,
    /// Its definition in one line.
    summary: String,
    /// Whether it makes ids on this node.
    available: bool,
}

impl<'a> NamespaceInfo<'a> {
    fn of(namespace: &'a Namespace) -> Self {
        let definition = namespace.definition();
        Self {
            name: namespace.name().as_str(),
            scheme: definition.scheme.name(),
            summary: definition.to_string(),
            available: !matches!(namespace.backend(), Backend::Unavailable(_)),
        }
    }
}

pub(super) fn answer(server: &ServerState, identity: &Identity) -> Result<Response<Body>, Problem> {
    identity.verify()?;
    let table = server.mint.table();
    let seen = table.namespaces().iter().filter(|it| identity.sees(it.name().as_str().as_bytes()));
    json(&ServerInfo {
        version: env!("CARGO_PKG_VERSION"),
        layout: server.mint.pool().layout().to_string(),
        datacenter: server.mint.datacenter().0,
        resp: server.resp.as_deref(),
        tokens: server.access.is_some(),
        admin: server.admin.is_some() && identity.may_everywhere(Right::Admin).is_ok(),
        namespaces: seen.take(NAMESPACES).map(|it| NamespaceInfo::of(it)).collect(),
    })
}
