//! Questions that tell whether a server is ready, in the protocol of each.
//! Every answer but the right one, and none within a second, is a no.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);

/// Whether Redis answers; one that asks for a password first is ready too.
pub(crate) fn redis(address: SocketAddr) -> bool {
    let answer = ask(address, b"PING\r\n", |answer| answer.ends_with(b"\r\n"));
    answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH")
}

/// Whether PostgreSQL takes sessions: it answers before that too, with SQLSTATE 57P03.
pub(crate) fn postgres(address: SocketAddr) -> bool {
    let mut startup = vec![0, 0, 0, 0, 0, 3, 0, 0];
    startup.extend(b"user\0postgres\0database\0postgres\0\0");
    startup[3] = u8::try_from(startup.len()).unwrap();
    let answer = ask(address, &startup, |answer| answer.len() >= 5 && answer.len() > usize::from(answer[4]));
    let starting = answer.windows(5).any(|it| it == b"57P03");
    matches!(answer.first(), Some(b'R' | b'E')) && !starting
}

/// Whether MariaDB greets: a packet that begins with protocol version 10.
pub(crate) fn mariadb(address: SocketAddr) -> bool {
    ask(address, b"", |answer| answer.len() >= 5).get(4) == Some(&10)
}

/// What ZooKeeper says it is: `standalone`, `leader` or `follower`, or nothing before it serves.
pub(crate) fn zookeeper_mode(address: SocketAddr) -> Option<String> {
    let answer = ask(address, b"srvr", |_| false);
    let answer = String::from_utf8_lossy(&answer);
    answer.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned))
}

/// The body of an answer to a GET by HTTP.
pub(crate) fn http(address: SocketAddr, path: &str) -> Option<String> {
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    let answer = ask(address, request.as_bytes(), |_| false);
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// Sends a question and reads until the answer is complete, the server closes, or patience ends.
fn ask(address: SocketAddr, question: &[u8], complete: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return answer;
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    if stream.write_all(question).is_err() {
        return answer;
    }
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
        if complete(&answer) {
            break;
        }
    }
    answer
}
