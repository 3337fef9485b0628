//! A web service that gives each order an id. Start `snowmint serve` first, then:
//! `curl -X POST localhost:3000/orders`.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use snowmint_client::{Client, Ids};

/// The default address of `snowmint serve`. `SNOWMINT_SERVERS` overrides it with a comma-separated list.
const SERVERS: &str = "http://127.0.0.1:8080";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::var("SNOWMINT_SERVERS").unwrap_or_else(|_| SERVERS.to_owned());
    let client = Client::builder().servers(servers.split(',')).build()?;
    let orders = client.namespace("default")?;
    // Fails early if no server is reachable or the token is wrong.
    orders.next_id().await?;

    let app = Router::new().route("/orders", post(create_order)).with_state(orders);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn create_order(State(orders): State<Ids>) -> Result<String, (StatusCode, String)> {
    match orders.next_id().await {
        // As text: JavaScript numbers hold only 53 bits.
        Ok(id) => Ok(format!("{id}\n")),
        Err(error) if error.is_temporary() => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
