//! A TCP proxy in front of a server that causes the faults of networks: freeze, cut, refuse, delay, lose
//! answers. It uses plain threads, one for each direction of a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::port::Port;

/// The interval at which the proxy tries to get its port back after it refused connections.
const POLL: Duration = Duration::from_millis(1);

/// A proxy on its own port. When dropped, it cuts its connections and stops.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "troubles that come and go apart from each other")]
struct State {
    frozen: bool,
    refusing: bool,
    losing_answers: bool,
    /// Number of answer bytes to pass before all connections are cut.
    answers_left: Option<usize>,
    /// Number of answer bytes passed so far.
    answered: usize,
    delay: Duration,
    stopped: bool,
    /// Both ends of every open connection, with its number.
    streams: Vec<(usize, TcpStream)>,
    accepted: usize,
}

impl Proxy {
    /// Starts a proxy that passes everything on.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn start(target: SocketAddr) -> Self {
        let port = Port::reserve();
        let shared =
            Arc::new(Shared { target: Mutex::new(target), state: Mutex::default(), changed: Condvar::new() });
        let (listener, serving) = (TcpListener::bind(port.address()).unwrap(), Arc::clone(&shared));
        thread::spawn(move || serving.serve(listener));
        Self { port, shared }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Leads to another server from now on, and cuts the open connections.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        self.cut();
    }

    /// Stops passing data in either direction until [`thaw`](Self::thaw); connections are accepted and stay
    /// open, as with a pulled cable.
    pub fn freeze(&self) {
        self.shared.state().frozen = true;
    }

    /// Passes on all held-back data, and continues.
    pub fn thaw(&self) {
        self.shared.state().frozen = false;
        self.shared.changed.notify_all();
    }

    /// Closes every open connection, and accepts new ones.
    pub fn cut(&self) {
        self.shared.state().cut();
    }

    /// Refuses new connections until [`accept`](Self::accept), and cuts the open ones.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn refuse(&self) {
        {
            let mut state = self.shared.state();
            state.refusing = true;
            state.cut();
        }
        let refused = || TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).is_err();
        assert!(
            crate::time::holds_within(Duration::from_secs(5), refused),
            "{self:?} still accepts connections"
        );
    }

    /// Accepts connections again after [`refuse`](Self::refuse).
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn accept(&self) {
        self.shared.state().refusing = false;
        self.shared.changed.notify_all();
        let taken = || TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).is_ok();
        assert!(crate::time::holds_within(Duration::from_secs(5), taken), "{self:?} accepts no connections");
    }

    /// Delays every piece of data by that long, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Starts or stops to drop answers while requests pass: writes happen without the client's knowledge.
    pub fn lose_answers(&self, lose: bool) {
        self.shared.state().losing_answers = lose;
    }

    /// Passes that many more bytes of answers, then cuts every connection, then passes everything on.
    pub fn cut_answers_after(&self, bytes: usize) {
        self.shared.state().answers_left = Some(bytes);
    }

    /// Cancels [`cut_answers_after`](Self::cut_answers_after), unless it has cut.
    pub fn pass_answers(&self) {
        self.shared.state().answers_left = None;
    }

    /// Returns the number of answer bytes passed so far.
    pub fn answered(&self) -> usize {
        self.shared.state().answered
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopped = true;
        state.cut();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts connections.
        TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).ok();
    }
}

impl State {
    /// Returns how many bytes of an answer to pass, and whether to cut all connections after them.
    fn answer(&mut self, bytes: usize) -> (usize, bool) {
        let passed = self.answers_left.map_or(bytes, |left| left.min(bytes));
        self.answered += passed;
        self.answers_left = self.answers_left.map(|left| left - passed);
        let cut = passed < bytes;
        if cut {
            self.answers_left = None;
        }
        (passed, cut)
    }

    fn cut(&mut self) {
        for (_, stream) in self.streams.drain(..) {
            // A closed connection needs no shutdown.
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until the proxy is dropped. While it refuses, it does not listen.
    fn serve(self: Arc<Self>, listener: TcpListener) {
        let address = listener.local_addr().unwrap();
        let mut listener = Some(listener);
        loop {
            let taken = listener.as_ref().map(TcpListener::accept);
            let mut state = self.state();
            if state.refusing {
                listener = None;
                let refusing = self.changed.wait_while(state, |it| it.refusing && !it.stopped);
                state = refusing.unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopped {
                return;
            }
            drop(state);
            match taken {
                Some(Ok((client, _))) if listener.is_some() => Self::connect(&self, client),
                Some(Err(error)) => panic!("the proxy accepts no connections: {error}"),
                _ => listener = self.listen_again(address),
            }
        }
    }

    /// Binds the port again; `None` if the proxy has to refuse or stop before the port is free.
    fn listen_again(&self, address: SocketAddr) -> Option<TcpListener> {
        loop {
            if let Ok(listener) = TcpListener::bind(address) {
                return Some(listener);
            }
            let state = self.state();
            if state.refusing || state.stopped {
                return None;
            }
            drop(state);
            thread::sleep(POLL);
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        let connecting = Arc::clone(self);
        // In a thread, because connecting to a paused server may take a while.
        thread::spawn(move || {
            let target = *connecting.target.lock().unwrap_or_else(PoisonError::into_inner);
            // If the server is down, the client sees a connection that closes at once.
            let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else {
                return;
            };
            connecting.pass(client, server);
        });
    }

    fn pass(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        for stream in [&client, &server] {
            stream.set_nodelay(true).ok();
        }
        let copies = (client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone());
        let (Ok(client_copy), Ok(server_copy), Ok(kept), Ok(kept_too)) = copies else {
            return;
        };
        let number = {
            let mut state = self.state();
            if state.stopped || state.refusing {
                return;
            }
            state.accepted += 1;
            let number = state.accepted;
            state.streams.extend([(number, kept), (number, kept_too)]);
            number
        };
        let other = Arc::clone(self);
        thread::spawn(move || other.pump(server_copy, client_copy, Way::ToClient));
        self.pump(client, server, Way::ToServer);
        // Copies of closed streams would keep their file descriptors open, and a long run makes thousands.
        self.state().streams.retain(|(of, _)| *of != number);
    }

    /// Passes one direction on until either end closes.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream, way: Way) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let Some(delay) = self.gate() else {
                break;
            };
            if !delay.is_zero() {
                thread::sleep(delay);
            }
            if way == Way::ToClient && self.state().losing_answers {
                continue;
            }
            let (passed, cut) =
                if way == Way::ToClient { self.state().answer(count) } else { (count, false) };
            if to.write_all(&buffer[..passed]).is_err() {
                break;
            }
            if cut {
                self.state().cut();
            }
        }
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
    }

    /// Waits while the proxy is frozen; then returns the delay, or `None` if the proxy is gone.
    fn gate(&self) -> Option<Duration> {
        let state = self.state();
        let state = self.changed.wait_while(state, |it| it.frozen && !it.stopped);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (!state.stopped).then_some(state.delay)
    }
}
