//! A web service that gives each order an id. Start `snowmint serve` first, then:
//! `curl -X POST localhost:3000/orders`.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use snowmint_client::{Client, Ids};

/// The address of `snowmint serve`, unless `SNOWMINT_SERVERS` has others, separated by commas.
const SERVERS: &str = "http://127.0.0.1:8080";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers = std::env::var("SNOWMINT_SERVERS").unwrap_or_else(|_| SERVERS.to_owned());
    let client = Client::builder().servers(servers.split(',')).build()?;
    let orders = client.namespace("default")?;
    // Fails early if no server can be reached or the token is wrong.
    orders.next_id().await?;

    let app = Router::new().route("/orders", post(create_order)).with_state(orders);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn create_order(State(orders): State<Ids>) -> Result<String, (StatusCode, String)> {
    match orders.next_id().await {
        // As text: JavaScript keeps 53 bits of a number.
        Ok(id) => Ok(format!("{id}\n")),
        Err(error) if error.is_temporary() => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
