//! One RESP connection: read what is there, answer all of it, write once.
//! Output beyond a bound is sent before more is made, so a client that does not read stops only itself.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::accept::say_and_close;
use crate::limits::resp::{MAX_READ_ROOM, READ_ROOM};
use crate::limits::{FLUSH_AT, HEAR_OUT, WRITE_STALL};
use crate::metrics::Protocol;
use crate::mint::{Caller, Ids, MintError, Source};
use crate::resp::codec::{Parser, ProtocolError, Step};
use crate::resp::command::{Call, Flow, Request, refuse, write_id};
use crate::resp::reply;
use crate::resp::session::Session;
use crate::resp::tally::Tally;
use crate::server::Server;
use crate::shutdown::Draining;
use crate::status::Kind;

/// Serves one connection until the client leaves, breaks the protocol, or the service ends.
pub(crate) async fn serve<S: Source>(server: Arc<Server<S>>, stream: TcpStream, draining: Draining) {
    let mut connection = Connection {
        session: Session::new(server.next_client()),
        tally: Tally::default(),
        caller: server.mint.caller(),
        room: READ_ROOM,
        out: Vec::new(),
        server,
        stream,
    };
    let ended = connection.run(draining).await;
    connection.tally.add_up(&connection.server.metrics);
    match ended {
        Ok(End::Quiet) => {}
        // What is in `out` says why; the client may still be sending.
        Ok(End::Told) => say_and_close(connection.stream, &connection.out).await,
        Err(error) => tracing::debug!(%error, "RESP connection broke"),
    }
}

/// How a connection ends that did not break.
enum End {
    /// There is nothing more to say.
    Quiet,
    /// What is in the output is still to be said.
    Told,
}

struct Connection<S: Source> {
    server: Arc<Server<S>>,
    stream: TcpStream,
    session: Session,
    caller: Caller<S>,
    tally: Tally<S>,
    /// How much is read at once.
    room: usize,
    out: Vec<u8>,
}

impl<S: Source> Connection<S> {
    async fn run(&mut self, draining: Draining) -> io::Result<End> {
        let mut ends = pin!(draining.clone().begun());
        let mut ending = None;
        let mut input = Vec::with_capacity(self.room);
        let mut parser = Parser::default();
        loop {
            input.reserve(self.room);
            let read = tokio::select! {
                // What has arrived is answered even when the service ends: only an idle connection is closed.
                biased;
                read = self.stream.read_buf(&mut input) => read?,
                // One that was answered since may be sending more, which must not take the replies back.
                () = &mut ends => return Ok(if ending.is_some() { End::Told } else { End::Quiet }),
            };
            if read == 0 {
                return Ok(End::Quiet);
            }
            let full = input.len() == input.capacity();
            if let Some(end) = self.answer(&mut parser, &mut input).await? {
                return Ok(end);
            }
            self.flush().await?;
            if draining.has_begun() && ending.get_or_insert_with(Instant::now).elapsed() > HEAR_OUT {
                return Ok(End::Told);
            }
            self.fit_room(full, read, &mut input, &mut parser);
        }
    }

    /// Answers every whole command of the input, and leaves what is not one yet.
    async fn answer(&mut self, parser: &mut Parser, input: &mut Vec<u8>) -> io::Result<Option<End>> {
        let (mut start, mut created) = (0, false);
        while start < input.len() {
            let (args, len) = match parser.next(&input[start..]) {
                Ok(Step::Command { args, len }) => (args, len),
                Ok(Step::Incomplete) => break,
                Err(error) => return Ok(Some(self.broken(error))),
            };
            if args.is_empty() {
                start += len;
                continue;
            }
            let call = Call {
                server: &self.server,
                session: &mut self.session,
                caller: &mut self.caller,
                tally: &mut self.tally,
                args,
                out: &mut self.out,
            };
            match call.run() {
                Flow::Done => {}
                Flow::Close => return Ok(Some(End::Told)),
                Flow::Abandon => return Ok(Some(End::Quiet)),
                Flow::Ids(request, ids) => self.write_ids(request, ids).await?,
                Flow::Create(name, unknown) => {
                    self.flush().await?;
                    match self.server.mint.create(&name, unknown).await {
                        // Once more, now that it is there.
                        Ok(()) if !created => {
                            created = true;
                            continue;
                        }
                        Ok(()) => {
                            self.refuse(&MintError::NotReady { why: "it was dropped meanwhile".to_owned() });
                        }
                        Err(error) => self.refuse(&error),
                    }
                }
                flow => self.wait(flow).await?,
            }
            (start, created) = (start + len, false);
            self.flush_full().await?;
        }
        input.drain(..start);
        Ok(None)
    }

    /// Replies that are there must not wait with the one that is not.
    async fn wait(&mut self, flow: Flow<S>) -> io::Result<()> {
        self.flush().await?;
        match flow {
            Flow::Wait(request, part) => match request.namespace.wait(self.caller.callers(), part).await {
                Ok(ids) => self.write_ids(request, ids).await?,
                Err(error) => self.refuse(&error),
            },
            Flow::Increment(namespace, count) => match namespace.take_run(count).await {
                Ok(run) => {
                    self.tally.issued(&self.server.metrics, &namespace, run.count().get());
                    reply::integer(&mut self.out, run.last());
                }
                Err(error) => self.refuse(&error),
            },
            _ => {}
        }
        Ok(())
    }

    fn refuse(&mut self, error: &MintError) {
        refuse(&self.server, &mut self.out, error);
    }

    async fn write_ids(&mut self, request: Request<S>, mut ids: Ids) -> io::Result<()> {
        self.tally.issued(&self.server.metrics, &request.namespace, ids.len() as u64);
        if request.answer.array {
            reply::array(&mut self.out, ids.len());
        }
        let mut text = Vec::new();
        while let Some(id) = ids.next() {
            write_id(&mut self.out, &ids, id, request.answer.id, &mut text);
            self.flush_full().await?;
        }
        if ids.len() > 0 {
            return Err(io::Error::other("the system gave no more random bits"));
        }
        Ok(())
    }

    #[cold]
    fn broken(&mut self, error: ProtocolError) -> End {
        tracing::debug!(client = self.session.id, %error, "RESP client disconnected");
        self.server.metrics.failed(Protocol::Resp, Kind::BadRequest);
        reply::error(&mut self.out, Kind::BadRequest.status().resp, error);
        End::Told
    }

    /// Sends a full buffer, and lets other connections run: a client that reads as fast as we write never makes us wait,
    /// and two of them would keep every thread for as long as they have requests in line.
    async fn flush_full(&mut self) -> io::Result<()> {
        if self.out.len() >= FLUSH_AT {
            self.flush().await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Sends what there is, and adds up what was counted on the way.
    async fn flush(&mut self) -> io::Result<()> {
        self.tally.add_up(&self.server.metrics);
        let mut sent = 0;
        while sent < self.out.len() {
            let rest = &self.out[sent..];
            sent += match self.stream.try_write(rest) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The timer is only for a client that does not read: others never get here.
                    timeout(WRITE_STALL, self.stream.write(rest)).await.map_err(|_| stalled())??
                }
                Err(error) => return Err(error),
            };
        }
        self.out.clear();
        Ok(())
    }

    /// Reads more at once while reads come in full, and gives room back when they no longer do.
    fn fit_room(&mut self, full: bool, read: usize, input: &mut Vec<u8>, parser: &mut Parser) {
        if full {
            self.room = (self.room * 2).min(MAX_READ_ROOM);
        } else if self.room > READ_ROOM && read < self.room / 8 {
            self.room = READ_ROOM;
            self.out = Vec::new();
            parser.shrink();
        }
        if input.is_empty() && input.capacity() > self.room {
            *input = Vec::with_capacity(self.room);
        }
        if self.out.capacity() > 4 * READ_ROOM {
            self.out = Vec::new();
        }
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the client took nothing for {WRITE_STALL:?}"))
}
