//! A client that sends one request at a time.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::server::PATIENCE;

/// Connects.
///
/// # Errors
///
/// An error of the system.
pub fn connected(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// Reads a line.
///
/// # Errors
///
/// The connection is closed, or an error of the system.
pub fn line(client: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if client.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

/// Requests a path. Returns the body if the status is 200.
///
/// # Errors
///
/// Another status, or an error of the system.
pub fn get(client: &mut BufReader<TcpStream>, path: &str) -> io::Result<String> {
    client.get_mut().write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let status = line(client)?;
    let mut length = 0;
    loop {
        let header = line(client)?.to_ascii_lowercase();
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    if !status.contains(" 200 ") {
        return Err(io::Error::other(status));
    }
    String::from_utf8(body).map_err(io::Error::other)
}
