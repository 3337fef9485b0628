//! The standard health service: a node serves if it can make ids and is not shutting down, as `/readyz` says.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::state::ServerState;
use crate::state::shutdown::ShutdownListener;

/// Interval between two checks of a node that a client watches.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The services whose health is known; the empty name is the whole node.
const KNOWN: [&str; 2] = ["", "snowmint.v1.Snowmint"];

/// The health of this node.
#[derive(Clone)]
pub(super) struct NodeHealth {
    server: Arc<ServerState>,
    shutdown: ShutdownListener,
}

impl NodeHealth {
    pub(super) const fn new(server: Arc<ServerState>, shutdown: ShutdownListener) -> Self {
        Self { server, shutdown }
    }

    fn look(&self) -> ServingStatus {
        if self.shutdown.is_leaving() || self.server.mint.check_ready().is_err() {
            ServingStatus::NotServing
        } else {
            ServingStatus::Serving
        }
    }
}

#[tonic::async_trait]
impl Health for NodeHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let name = request.into_inner().service;
        if !KNOWN.contains(&name.as_str()) {
            return Err(Status::not_found(format!("unknown service: expected {}", KNOWN[1])));
        }
        Ok(Response::new(HealthCheckResponse { status: self.look().into() }))
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    /// Sends the status at once, and again when it has changed. Never ends by itself.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = KNOWN.contains(&request.into_inner().service.as_str());
        let watch = move |(node, last): (Self, Option<ServingStatus>)| async move {
            loop {
                let status = if is_known { node.look() } else { ServingStatus::ServiceUnknown };
                if last != Some(status) {
                    let response = HealthCheckResponse { status: status.into() };
                    return Some((Ok(response), (node, Some(status))));
                }
                tokio::select! {
                    () = sleep(LOOK_INTERVAL) => {}
                    // The last status that a client sees.
                    () = node.shutdown.clone().ended(), if last == Some(ServingStatus::Serving) => {}
                }
            }
        };
        let statuses = futures_util::stream::unfold((self.clone(), None), watch);
        Ok(Response::new(Box::pin(statuses)))
    }
}
