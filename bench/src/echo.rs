//! Peers that answer every request with a constant: the minimum cost of a server on the same libraries.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use axum::Router;
use axum::routing::get;
use snowmint_server::grpc_messages::{NextRequest, NextResponse};
use snowmint_server::thrift_codec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use crate::server::Outcome;

/// An id as large as a real one.
const ID: i64 = 1_541_815_603_606_036_480;
/// The answer to one id over HTTP.
const DOCUMENT: &str = "{\"ids\":[\"1541815603606036480\"]}";

/// Serves until the process is killed. Knows `http`, `grpc` and `thrift`.
///
/// # Errors
///
/// An error of the system, or an unknown protocol.
pub fn serve(protocol: &str, address: SocketAddr) -> Outcome<()> {
    // The same number of threads as Snowmint.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match protocol {
            "http" => {
                let listener = TcpListener::bind(address).await?;
                Ok(axum::serve(listener, Router::new().route("/", get(|| async { DOCUMENT }))).await?)
            }
            "grpc" => Ok(tonic::transport::Server::builder().serve(address, Echo).await?),
            "thrift" => thrift(TcpListener::bind(address).await?).await,
            other => Err(format!("no peer for {other}").into()),
        }
    })
}

/// A tonic service, as its code generator would write it for one method.
#[derive(Clone, Copy, Debug)]
struct Echo;

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(Grpc::new(ProstCodec::default()).unary(Self, request).await) })
    }
}

impl UnaryService<NextRequest> for Echo {
    type Response = NextResponse;
    type Future = Ready<Result<tonic::Response<NextResponse>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<NextRequest>) -> Self::Future {
        ready(Ok(tonic::Response::new(NextResponse {
            ids: vec![ID.cast_unsigned()],
            ..NextResponse::default()
        })))
    }
}

/// Answers every call with a number, one write for each read.
async fn thrift(listener: TcpListener) -> Outcome<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // A connection ends when its client disconnects.
            let _ = answer(stream).await;
        });
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut input, mut out) = (Vec::with_capacity(4096), Vec::new());
    while stream.read_buf(&mut input).await? > 0 {
        let mut start = 0;
        while let Ok(Some((request, len))) = thrift_codec::parse(&input[start..]) {
            thrift_codec::reply(&mut out, &request, ID);
            start += len;
        }
        input.drain(..start);
        stream.write_all(&out).await?;
        out.clear();
    }
    Ok(())
}
