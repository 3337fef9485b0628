//! Draws over gRPC, with the client of tonic on a connection of hyper.

use std::error::Error as _;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use snowmint_server::grpc_messages::{Format, NextRequest, NextResponse};
use tonic::Status;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::{BoxFuture, Service};
use tonic::metadata::MetadataValue;
use tonic_prost::ProstCodec;

use super::{NoIds, Stream, Target, key};
use crate::bench::Lane;

/// The path of the method that returns ids.
const NEXT: &str = "/snowmint.v1.Snowmint/Next";
/// The trailer with the kind of an error; every error of a Snowmint node has it.
const KIND: &str = "snowmint-error";

/// A connection for gRPC calls.
pub(super) struct GrpcLink {
    client: Grpc<Http2>,
    /// `Numbers`, until the namespace turns out to use texts.
    format: Format,
}

impl GrpcLink {
    pub(super) async fn open(stream: Box<dyn Stream>, target: &Target) -> Result<Self, NoIds> {
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(NoIds::broken)?;
        // The task ends when the sender is dropped.
        tokio::spawn(connection);
        let scheme = if target.tls.is_some() { "https" } else { "http" };
        let origin = Uri::builder().scheme(scheme).authority(target.authority.as_str()).path_and_query("/");
        let client = Grpc::with_origin(Http2(sender), origin.build().map_err(NoIds::broken)?);
        Ok(Self { client, format: Format::Numbers })
    }

    /// Draws one batch, and returns the number of ids.
    pub(super) async fn draw(&mut self, target: &Target, lane: &mut Lane) -> Result<u64, NoIds> {
        let drawn = match self.next(target).await {
            // A rejected call uses up no id.
            Err(error) if self.format == Format::Numbers && error.kind == "wrong-scheme" => {
                self.format = Format::Texts;
                self.next(target).await?
            }
            drawn => drawn?,
        };
        drawn.ids.iter().for_each(|id| lane.keep(*id));
        drawn.texts.iter().for_each(|text| lane.keep(key(text)));
        Ok((drawn.ids.len() + drawn.texts.len()) as u64)
    }

    async fn next(&mut self, target: &Target) -> Result<NextResponse, NoIds> {
        let mut call = tonic::Request::new(NextRequest {
            namespace: target.request.clone(),
            count: Some(u32::try_from(target.batch).map_err(NoIds::broken)?),
            format: self.format.into(),
        });
        if let Some(token) = &target.token {
            let token = MetadataValue::try_from(format!("Bearer {token}")).map_err(NoIds::broken)?;
            call.metadata_mut().insert("authorization", token);
        }
        self.client.ready().await.map_err(NoIds::broken)?;
        let answer = self.client.unary(call, PathAndQuery::from_static(NEXT), ProstCodec::default()).await;
        answer.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }
}

/// Returns why a call has no ids: an error of the node, of the connection, or of a server that is not a
/// Snowmint node.
fn failed(status: &Status) -> NoIds {
    let why = status.message();
    match status.metadata().get(KIND).and_then(|kind| kind.to_str().ok()) {
        Some(kind) => NoIds { kind: kind.to_owned(), why: why.to_owned(), is_broken: false },
        None if status.source().is_some() => NoIds::broken(why),
        None => NoIds::unexpected(format!("gRPC status {:?}: {why}", status.code())),
    }
}

/// A hyper connection as a service for tonic.
struct Http2(SendRequest<Body>);

impl Service<Request<Body>> for Http2 {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
