//! The body of a request to a service of tonic.
//!
//! Reflection reads its requests in a task of its own. It would keep the call open after its answer was
//! reset, since a call ends once nobody reads its request any more. So the answer owns the request, and takes
//! it back when it is dropped.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};

/// The request, as the service reads it. It ends with the answer.
pub(crate) struct RequestBody(Arc<Shared>);

/// Ends the request when it is dropped with the answer.
pub(crate) struct RequestEnd(Arc<Shared>);

struct Shared(Mutex<State>);

struct State {
    /// `None` once the answer has ended.
    request: Option<Incoming>,
    /// Wakes the task that reads the request.
    reader: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestBody {
    pub(crate) fn new(request: Incoming) -> (Self, RequestEnd) {
        let shared = Arc::new(Shared(Mutex::new(State { request: Some(request), reader: None })));
        (Self(Arc::clone(&shared)), RequestEnd(shared))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut state = self.0.lock();
        state.reader = Some(cx.waker().clone());
        match &mut state.request {
            Some(request) => Pin::new(request).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }
}

impl Drop for RequestEnd {
    fn drop(&mut self) {
        let (request, reader) = {
            let mut state = self.0.lock();
            (state.request.take(), state.reader.take())
        };
        drop(request);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}
