//! Sessions that a proxy moves from server to server, and sessions that a call leaves behind on the server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::thread;

use snowmint_store::{Expected, StoreErrorKind};
use snowmint_test_servers::{MariaDb, MariaDbPair};
use sqlx::{Connection, MySqlConnection};

use super::{add_when_up, on, start};
use crate::support::{key, open, put};

/// A proxy that moves an open session to another server, and repeats there what had set the session up: the
/// login, `SET`, and the preparation of statements. So does `MaxScale` with `master_reconnection`.
struct MovingProxy {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl MovingProxy {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, target) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(target)));
        let serving = Arc::clone(&target);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let target = Arc::clone(&serving);
                // An error ends the session.
                thread::spawn(move || serve(client, &target).ok());
            }
        });
        Self { address, target }
    }

    /// Moves all sessions to another server before their next commands.
    fn lead_to(&self, server: &MariaDb) {
        *self.target.lock().unwrap() = server.address();
    }
}

/// The prepared statements of a session. A client gets their places in this list as their numbers.
#[derive(Default)]
struct Statements {
    /// The numbers on the server.
    numbers: Vec<[u8; 4]>,
    /// Whether the next answer is that to a preparation.
    prepares: bool,
}

impl Statements {
    /// Takes the number from the first packet of an answer to a preparation, unless that failed.
    fn take(&mut self, answer: &mut [u8]) {
        self.prepares = false;
        if let [_, _, _, 1, 0, number @ ..] = answer
            && let Some(number) = number.first_chunk_mut()
        {
            self.numbers.push(*number);
            *number = u32::try_from(self.numbers.len() - 1).unwrap().to_le_bytes();
        }
    }
}

const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

fn serve(mut client: TcpStream, target: &Mutex<SocketAddr>) -> io::Result<()> {
    let mut at = *target.lock().unwrap();
    let mut server = TcpStream::connect(at)?;
    let statements = Arc::default();
    pass_answers(&server, &client, &statements)?;
    let mut repeated = Vec::new();
    while let Ok(mut packet) = read_packet(&mut client) {
        let now = *target.lock().unwrap();
        if now != at {
            server.shutdown(Shutdown::Both)?;
            (server, at) = (moved(now, &repeated, &mut statements.lock().unwrap())?, now);
            pass_answers(&server, &client, &statements)?;
        }
        if repeated.is_empty() || sets_up(&packet) {
            repeated.push(packet.clone());
        }
        let mut statements = statements.lock().unwrap();
        statements.prepares = packet[4] == PREPARE;
        if packet[4] == EXECUTE
            && let Some(number) = packet[5..].first_chunk_mut()
        {
            *number = statements.numbers[usize::try_from(u32::from_le_bytes(*number)).unwrap()];
        }
        drop(statements);
        server.write_all(&packet)?;
    }
    server.shutdown(Shutdown::Both)
}

/// Passes answers on until the server closes, or is left.
fn pass_answers(
    server: &TcpStream,
    client: &TcpStream,
    statements: &Arc<Mutex<Statements>>,
) -> io::Result<()> {
    let (mut server, mut client) = (server.try_clone()?, client.try_clone()?);
    let statements = Arc::clone(statements);
    thread::spawn(move || {
        while let Ok(mut packet) = read_packet(&mut server) {
            let mut statements = statements.lock().unwrap();
            if statements.prepares {
                statements.take(&mut packet);
            }
            drop(statements);
            if client.write_all(&packet).is_err() {
                break;
            }
        }
    });
    Ok(())
}

/// Reads a packet with its head: three bytes of length, and its number.
fn read_packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; 4];
    stream.read_exact(&mut packet)?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
    packet.resize(4 + usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut packet[4..])?;
    Ok(packet)
}

/// Returns whether a command is a `SET`, or prepares a statement.
fn sets_up(packet: &[u8]) -> bool {
    matches!(packet[4..], [0x03, b'S', b'E', b'T', ..] | [PREPARE, ..])
}

/// Opens a session as another one was: its login, which has no password, then the commands.
fn moved(to: SocketAddr, repeated: &[Vec<u8>], statements: &mut Statements) -> io::Result<TcpStream> {
    const PING: [u8; 5] = [1, 0, 0, 0, 0x0e];
    let mut server = TcpStream::connect(to)?;
    read_packet(&mut server)?;
    let [login, commands @ ..] = repeated else { panic!("no login") };
    server.write_all(login)?;
    let answer = read_packet(&mut server)?;
    assert_eq!(answer[4], 0, "a login without a password: {answer:?}");
    statements.numbers.clear();
    for command in commands {
        server.write_all(&[command, &PING[..]].concat())?;
        let mut answer = read_packet(&mut server)?;
        if command[4] == PREPARE {
            statements.take(&mut answer);
        }
        // Only the first packet of each answer has the number 1, and the next is that to the ping.
        while read_packet(&mut server)?[3] != 1 {}
    }
    Ok(server)
}

/// Goal: nothing is written on a server that was not checked, and nothing read there counts. Method: a proxy
/// moves a session to a second writable server with the same records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_moved_writes_nothing() {
    let [first, second] = [1, 2].map(|id| MariaDb::with(&[&format!("--server-id={id}")]));
    let proxy = MovingProxy::start(first.address());
    let store = open(&format!("mysql://root@{}/test?ssl-mode=disabled", proxy.address)).await;
    open(&format!("mysql://root@{}/test", second.address())).await;
    put(&*store, "a", b"1").await;
    let one = NonZeroU64::MIN;
    store.add(&key("sum"), one).await.unwrap();
    let rows =
        "SELECT HEX(name), revision, HEX(value) FROM test.snowmint_records WHERE name < '~' ORDER BY name";
    let copied = first.sql(rows);
    for line in copied.lines() {
        let [name, revision, value] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        second.sql(&format!("INSERT INTO test.snowmint_records VALUES (x'{name}', {revision}, x'{value}')"));
    }
    for call in 0..4 {
        proxy.lead_to(&first);
        // Opens a session, prepares the statements, and has the revision.
        let known = loop {
            match store.load(&key("a")).await {
                Ok(found) => break found.unwrap(),
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
            }
        };
        let before = first.sql(rows);
        proxy.lead_to(&second);
        let answer = match call {
            0 => store.compare_and_set(&key("a"), Expected::Revision(known.revision), b"2").await.map(drop),
            1 => store.compare_and_set(&key("b"), Expected::Absent, b"2").await.map(drop),
            2 => store.add(&key("sum"), one).await.map(drop),
            _ => store.load(&key("a")).await.map(drop),
        };
        let error = answer.expect_err("the session is on a server that was not checked");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("moved the session to another server"), "{error}");
        assert_eq!((first.sql(rows), second.sql(rows)), (before, copied.clone()), "call {call}");
    }
    // The next session is checked itself.
    assert_eq!(store.add(&key("sum"), one).await.unwrap(), 1);
}

/// Number of sessions that still run a statement.
const RUNNING: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'node' AND command <> 'Sleep'";

/// Goal: calls that were given up do not take all connections of a server whose table is locked, and it ends
/// them itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_lock_of_the_table_leave_few_sessions() {
    let server = MariaDb::start();
    server.sql("CREATE USER node@'%'; GRANT ALL ON test.* TO node@'%'");
    let store = open(&format!("mysql://node@{}/test?timeout_ms=1000", server.address())).await;
    let mut other =
        MySqlConnection::connect(&format!("mysql://root@{}/test", server.address())).await.unwrap();
    sqlx::raw_sql("LOCK TABLES snowmint_records WRITE").execute(&mut other).await.unwrap();
    for _ in 0..20 {
        let error = store.load(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    let running: u32 = server.sql(RUNNING).parse().unwrap();
    assert!(running <= 5, "{running} sessions wait");
    server.wait_until("the end of the waits", &RUNNING.replace("COUNT(*)", "COUNT(*) = 0"));
    sqlx::raw_sql("UNLOCK TABLES").execute(&mut other).await.unwrap();
    add_when_up(&*store).await;
}

/// Goal: as above, while commits wait for a replica, which no timeout of a session ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_replica_leave_few_sessions() {
    let pair = start().await;
    let store = open(&format!("{}?timeout_ms=1500", pair.url("node"))).await;
    add_when_up(&*store).await;
    on(&pair, MariaDbPair::cut_replica).await;
    let mut told = false;
    for _ in 0..20 {
        let error = store.load(&key("sum")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        told |= error.to_string().contains("calls of this node still hang there");
    }
    let running: u32 = pair.primary().sql(RUNNING).parse().unwrap();
    assert!(running <= 5 && told, "{running} sessions wait");
    pair.replica().sql("START SLAVE IO_THREAD");
    add_when_up(&*store).await;
}
