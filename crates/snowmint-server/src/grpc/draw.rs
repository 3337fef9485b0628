//! Draws the ids of one request, at once if they are available, and puts them into the requested form.

use std::sync::Arc;

use snowmint::error::Snippet;
use snowmint_cluster::namespace::TextForm;

use super::Failure;
use super::message::{Answer, room_of_ids};
use super::messages::{Format, NextRequest, NextResponse, Range};
use crate::access::mint_access::{self, MintAccess, TryTake, issued};
use crate::access::{Identity, Right, Spent};
use crate::limits::grpc::MAX_TEXTS;
use crate::limits::unread::{LONG, SMALL};
use crate::limits::{MAX_COUNT, MAX_RANGE_COUNT, MAX_WAIT};
use crate::mint::{IdRange, Ids, MintError, Namespace};
use crate::state::ServerState;
use crate::status::ErrorKind;

/// The state of a request after all steps that need no waiting.
pub(super) enum Drawn {
    Done(Answer),
    /// Some ids are missing; all count towards the quota already.
    Partial(Arc<Namespace>, mint_access::Drawn, Spent),
    /// The namespace must be created first.
    Unknown(MintError),
}

/// The bytes of the head of a text: tag and length.
const HEAD: usize = 3;

/// Returns how many bytes the answer to a request may hold; 0 if they are few, or if the request is invalid.
pub(super) fn room(client: &MintAccess, request: &NextRequest) -> usize {
    let Ok(form) = Form::of(request) else { return 0 };
    let count = form.count(request).unwrap_or(0);
    let room = match form {
        Form::Numbers => room_of_ids(count),
        Form::Ranges if count > 1 => LONG,
        Form::Ranges => 0,
        // An unknown namespace may be created with ids of any kind.
        Form::Texts => {
            let found = client.find(request.namespace.as_bytes());
            count * (HEAD + found.map_or(TextForm::MAX_LEN, |namespace| namespace.longest_text()))
        }
    };
    Some(room).filter(|room| *room > SMALL).unwrap_or(0)
}

/// Draws ids without waiting.
pub(super) fn try_draw(
    server: &ServerState,
    identity: &Identity,
    client: &MintAccess,
    request: &NextRequest,
) -> Result<Drawn, Failure> {
    let name = request.namespace.as_bytes();
    identity.may(Right::Mint, name)?;
    let form = Form::of(request)?;
    let count = form.count(request)?;
    let namespace = match client.find(name) {
        Ok(found) => found,
        Err(error) => match identity.unfound(&server.mint, Right::Mint, name, error) {
            unknown @ MintError::UnknownNamespace { .. } if server.mint.creates() => {
                return Ok(Drawn::Unknown(unknown));
            }
            error => return Err(error.into()),
        },
    };
    // Before anything is taken: a rejected request must not use up a number.
    if form != Form::Texts && !namespace.definition().is_plain_number() {
        let name = Snippet::of(namespace.name().as_str());
        return Err(MintError::NotNumbers { name }.into());
    }
    let spent = identity.spend(name, count as u64)?;
    try_take(identity, namespace, client, form, count, spent)
}

fn try_take(
    identity: &Identity,
    namespace: Arc<Namespace>,
    client: &MintAccess,
    form: Form,
    count: usize,
    spent: Spent,
) -> Result<Drawn, Failure> {
    if count == 1
        && form == Form::Numbers
        && let Some(id) = client.try_one(&namespace)?
    {
        issued(identity, &namespace, 1, spent);
        return Ok(Drawn::Done(Answer::of_id(id)));
    }
    match client.draw(&namespace, count, form.try_take())? {
        mint_access::Drawn::All(ids) => form.answer(identity, &namespace, ids, spent).map(Drawn::Done),
        partial => Ok(Drawn::Partial(namespace, partial, spent)),
    }
}

/// Waits for the missing ids or the missing namespace.
///
/// # Cancel safety
///
/// If the future is dropped, the ids it took are lost; nobody else gets them.
pub(super) async fn finish(
    server: &ServerState,
    identity: &Identity,
    client: &MintAccess,
    request: &NextRequest,
    drawn: Drawn,
) -> Result<Answer, Failure> {
    let drawn = match drawn {
        Drawn::Unknown(unknown) => {
            server.mint.create(request.namespace.as_bytes(), unknown).await?;
            try_draw(server, identity, client, request)?
        }
        drawn => drawn,
    };
    match drawn {
        Drawn::Done(answer) => Ok(answer),
        Drawn::Partial(namespace, partial, spent) => {
            let form = Form::of(request)?;
            let count = form.count(request)?;
            let ids = partial.finish(&namespace, count, MAX_WAIT, form.try_take()).await?;
            form.answer(identity, &namespace, ids, spent)
        }
        Drawn::Unknown(dropped) => Err(dropped.into()),
    }
}

/// How a response holds ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Numbers,
    Ranges,
    Texts,
}

impl Form {
    fn of(request: &NextRequest) -> Result<Self, Failure> {
        match Format::try_from(request.format) {
            Ok(Format::Unspecified | Format::Numbers) => Ok(Self::Numbers),
            Ok(Format::Ranges) => Ok(Self::Ranges),
            Ok(Format::Texts) => Ok(Self::Texts),
            Err(_) => {
                let text = format!(
                    "invalid format {}: expected FORMAT_NUMBERS (1), FORMAT_RANGES (2) or FORMAT_TEXTS (3)",
                    request.format
                );
                Err(Failure::new(ErrorKind::BadRequest, text))
            }
        }
    }

    fn try_take(self) -> TryTake {
        match self {
            Self::Ranges => Namespace::try_take_ranges,
            Self::Numbers | Self::Texts => Namespace::try_take,
        }
    }

    fn count(self, request: &NextRequest) -> Result<usize, MintError> {
        let limit = match self {
            Self::Numbers => MAX_COUNT,
            Self::Ranges => MAX_RANGE_COUNT,
            Self::Texts => MAX_TEXTS,
        };
        let count = request.count.unwrap_or(1);
        match usize::try_from(count) {
            Ok(valid) if (1..=limit).contains(&valid) => Ok(valid),
            _ => Err(MintError::BadCount { value: Snippet::of(&count.to_string()), limit }),
        }
    }

    fn answer(
        self,
        identity: &Identity,
        namespace: &Namespace,
        ids: Ids,
        spent: Spent,
    ) -> Result<Answer, Failure> {
        let count = ids.len();
        let answer = match self {
            Self::Numbers => Answer::of_ids(ids),
            Self::Ranges => {
                let response = NextResponse { ranges: ranges(ids), ..NextResponse::default() };
                Answer::of_message(&response)
            }
            Self::Texts => {
                let texts = texts(ids);
                if texts.len() < count {
                    let why = "the system has no randomness".to_owned();
                    return Err(MintError::NotReady { why }.into());
                }
                Answer::of_message(&NextResponse { texts, ..NextResponse::default() })
            }
        };
        issued(identity, namespace, count as u64, spent);
        Ok(answer)
    }
}

fn texts(mut ids: Ids) -> Vec<String> {
    let mut texts = Vec::with_capacity(ids.len());
    while let Some(id) = ids.next() {
        let mut text = Vec::new();
        ids.write(id, &mut text);
        // Text forms are always valid UTF-8.
        texts.push(String::from_utf8_lossy(&text).into_owned());
    }
    texts
}

/// Returns the ranges of ids. A range of one id has step 1.
fn ranges(mut ids: Ids) -> Vec<Range> {
    let mut ranges = Vec::new();
    while let Some(IdRange { first, count, step }) = ids.next_range() {
        let step = if count == 1 { 1 } else { step };
        // A request has at most MAX_RANGE_COUNT ids.
        ranges.push(Range { first, count: u32::try_from(count).unwrap_or(u32::MAX), step });
    }
    ranges
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use snowmint::Layout;

    use super::*;
    use crate::access::tests::limited;
    use crate::mint::Minted;
    use crate::testing::{TestSource, mint_of};

    fn listed(ranges: &[Range]) -> Vec<u64> {
        let all = |range: &Range| {
            let Range { first, count, step } = *range;
            (0..u64::from(count)).map(move |nth| first + nth * step)
        };
        ranges.iter().flat_map(all).collect()
    }

    /// Goal: a call that ends at its deadline costs no quota, in any form. Method: a draw that waits is
    /// dropped.
    #[tokio::test]
    async fn a_dropped_call_gives_its_ids_back() {
        let source = TestSource::new(Layout::TWITTER);
        source.set_stuck(true);
        let server = ServerState::for_tests(mint_of(source, Layout::TWITTER));
        let (identity, client) = (limited(10_000), MintAccess::new(&server.mint));
        for format in [Format::Numbers, Format::Ranges] {
            let request =
                NextRequest { namespace: "default".to_owned(), count: Some(10_000), format: format.into() };
            let Ok(drawn) = try_draw(&server, &identity, &client, &request) else { panic!("refused") };
            assert!(matches!(drawn, Drawn::Partial(..)), "{format:?}");
            assert!(identity.spend(b"default", 1).is_err(), "counted while it waits");
            assert!(finish(&server, &identity, &client, &request, drawn).now_or_never().is_none());
            drop(identity.spend(b"default", 10_000).unwrap());
        }
    }

    /// Goal: ranges hold the same ids in the same order. Method: two equal mints, one read as ranges, over a
    /// change of the tick.
    #[tokio::test]
    async fn ranges_hold_the_same_ids_in_the_same_order() {
        let behind: Layout = "time:41,sequence:12,datacenter:5,worker:5,epoch:1288834974657".parse().unwrap();
        for layout in [Layout::TWITTER, behind] {
            for count in [1, 2, 4096, 4097, 10_000] {
                let [ranged, ids] = [(); 2].map(|()| async {
                    let mint = mint_of(TestSource::new(layout), layout);
                    let mut connection = mint.connection_state();
                    let (namespace, handles) = connection.find(b"default").unwrap();
                    let _ = namespace.take(handles, 7).await.unwrap();
                    namespace.take(handles, count).await.unwrap()
                });
                let found = ranges(ranged.await);
                let ids: Vec<_> = ids.await.collect();
                let listed: Vec<_> = listed(&found).into_iter().map(Minted::Number).collect();
                assert_eq!(listed, ids);
                assert!(found.len() <= count / 4096 + 2, "{found:?}");
                assert!(found.iter().all(|range| range.count > 1 || range.step == 1), "{found:?}");
            }
        }
    }
}
