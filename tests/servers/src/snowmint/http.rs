//! A small raw HTTP/1.1 client: it sends exactly what the test says, and never retries.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The ids in the answer to `GET /v1/ids/...`.
    ///
    /// # Errors
    ///
    /// Status and body of an error.
    ///
    /// # Panics
    ///
    /// If it is neither.
    pub fn ids(&self) -> Result<Vec<u64>, String> {
        if self.status != 200 {
            return Err(format!("{} {}", self.status, self.body));
        }
        let json = self.json();
        let ids = json["ids"].as_array().expect("ids are an array");
        let id = |value: &Value| value.as_str()?.parse().ok();
        Ok(ids.iter().map(|value| id(value).expect("an id is a string of digits")).collect())
    }
}

/// One connection that is kept alive.
#[derive(Debug)]
pub struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    /// Connects; every read and write then takes `patience` at most.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn connect(address: SocketAddrV4, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address.into(), patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The socket itself.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends `GET` for a path, with more headers of the form `Name: value\r\n`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn get(&mut self, path: &str, headers: &str) -> io::Result<Answer> {
        self.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())?;
        self.read()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one answer with its body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] inside an answer, [`ErrorKind::ConnectionAborted`] if the server closed
    /// between answers, [`ErrorKind::InvalidData`] for an invalid answer; otherwise the error of the system.
    pub fn read(&mut self) -> io::Result<Answer> {
        if self.stream.fill_buf()?.is_empty() {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the server closed between answers"));
        }
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| invalid(&line))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(&line))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: String::new() };
        let body = self.body(&answer)?;
        answer.body = String::from_utf8(body).map_err(|_| invalid("a body that is not text"))?;
        Ok(answer)
    }

    fn body(&mut self, answer: &Answer) -> io::Result<Vec<u8>> {
        if answer.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
            return self.chunks();
        }
        let len = answer.header("content-length").map_or(Ok(0), str::parse);
        let mut body = vec![0; len.map_err(|_| invalid("a bad length"))?];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let len = usize::from_str_radix(&line, 16).map_err(|_| invalid(&line))?;
            let begin = body.len();
            body.resize(begin + len, 0);
            self.stream.read_exact(&mut body[begin..])?;
            if !self.line()?.is_empty() {
                return Err(invalid("a chunk that does not end"));
            }
            if len == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed inside an answer")),
        }
    }
}

/// Sends one `GET` over a new connection.
///
/// # Errors
///
/// As [`Http::read`].
pub fn get(address: SocketAddrV4, path: &str) -> io::Result<Answer> {
    Http::connect(address, Duration::from_secs(10))?.get(path, "Connection: close\r\n")
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not an answer: {what:?}"))
}
