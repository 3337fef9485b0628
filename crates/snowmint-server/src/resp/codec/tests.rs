//! Tests of the parser: what is a command, what breaks the connection, and that pieces make no difference.
//! The property tests also bound what is held for input that never becomes a command.

use proptest::prelude::*;

use super::*;

fn all(input: &[u8]) -> (Vec<Vec<String>>, Option<ProtocolError>) {
    let (found, error) = commands(input, input.len().max(1));
    let text = |arg: Vec<u8>| String::from_utf8_lossy(&arg).into_owned();
    (found.into_iter().map(|command| command.into_iter().map(text).collect()).collect(), error)
}

#[test]
fn commands_of_both_forms() {
    let input =
        b"*2\r\n$7\r\nID.NEXT\r\n$7\r\ndefault\r\nPING\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\nECHO 'a b'\nPIN";
    let (found, error) = all(input);
    assert_eq!(error, None);
    let wanted: [&[&str]; 7] = [&["ID.NEXT", "default"], &["PING"], &[], &[], &[], &[""], &["ECHO", "a b"]];
    assert_eq!(found, wanted);
}

#[test]
fn bulks_hold_any_bytes() {
    let (found, error) = commands(b"*1\r\n$7\r\n\r\n*\0\xff$1\r\n", 1);
    assert_eq!((found, error), (vec![vec![b"\r\n*\0\xff$1".to_vec()]], None));
}

#[test]
fn what_breaks_the_protocol_is_named_as_redis_does() {
    let too_many = format!("*{}\r\n", MAX_ARGS + 1);
    let too_long = format!("*1\r\n${}\r\n", MAX_BULK + 1);
    for (input, wanted) in [
        ("*x\r\n", "Protocol error: invalid multibulk length"),
        ("*1x\r\n", "Protocol error: invalid multibulk length"),
        ("*\r\n", "Protocol error: invalid multibulk length"),
        ("*1\rx", "Protocol error: invalid multibulk length"),
        ("*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
        (&too_many, "Protocol error: invalid multibulk length"),
        ("*11111111111111111111111111111111111111", "Protocol error: invalid multibulk length"),
        ("*1\r\n*1\r\n$4\r\nPING\r\n", "Protocol error: expected '$', got '*'"),
        ("*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
        ("*1\r\n\r\n", "Protocol error: expected '$', got '\\r'"),
        ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$4x\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$99999999999\r\n", "Protocol error: invalid bulk length"),
        (&too_long, "Protocol error: invalid bulk length"),
        ("*1\r\n$4\r\nPINGxx", "Protocol error: expected CRLF after bulk"),
        ("ECHO \"a\r\n", "Protocol error: unbalanced quotes in request"),
    ] {
        let (found, error) = all(input.as_bytes());
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(wanted), "{input:?}");
        assert!(found.is_empty(), "{input:?}");
        check_split(input.as_bytes(), 1);
    }
}

#[test]
fn lines_and_commands_end_at_their_bounds() {
    let line = |len: usize| [vec![b'a'; len], b"\n".to_vec()].concat();
    assert_eq!(all(&line(MAX_INLINE)).1, None);
    assert_eq!(all(&line(MAX_INLINE + 1)).1, Some(ProtocolError::InlineTooBig));
    // No end of line in sight: the bound holds all the same.
    assert_eq!(all(&vec![b'a'; MAX_INLINE]).1, None);
    assert_eq!(all(&vec![b'a'; MAX_INLINE + 1]).1, Some(ProtocolError::InlineTooBig));
    let bulk = |len: usize| [format!("${len}\r\n").into_bytes(), vec![b'a'; len], b"\r\n".to_vec()].concat();
    let command = |bulks: &[usize]| {
        let bulks: Vec<_> = bulks.iter().flat_map(|len| bulk(*len)).collect();
        [format!("*{}\r\n", 3).into_bytes(), bulks].concat()
    };
    assert_eq!(all(&command(&[MAX_BULK, MAX_BULK / 2, 1])).1, None);
    assert_eq!(all(&command(&[MAX_BULK, MAX_BULK, 1])).1, Some(ProtocolError::TooBig));
}

/// Goal: a command of 64 KiB that arrives byte by byte is not searched again for every byte. Method: the
/// parser's own position, which must follow the input.
#[test]
fn a_slow_line_is_searched_once() {
    let mut parser = Parser::default();
    let line = vec![b'a'; MAX_INLINE];
    for end in 1..line.len() {
        assert!(matches!(parser.next(&line[..end]), Ok(Step::Incomplete)));
        assert_eq!(parser.at, end);
    }
}

/// Encodes as client libraries do.
fn encode(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut out = Vec::new();
    for command in commands {
        out.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for arg in command {
            out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            out.extend_from_slice(arg);
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

/// Bytes that look like the protocol more often than chance would have it.
fn nearly_resp() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*1\r\n".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"$4\r\nPING\r\n".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"PING 'a".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"-1\r\n".to_vec()),
        Just(b"$65536\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn commands_come_out_as_they_went_in(
        sent in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..5), 0..8),
        piece in 1_usize..70,
    ) {
        let bytes = encode(&sent);
        prop_assert_eq!(commands(&bytes, piece), (sent, None));
    }

    #[test]
    fn any_bytes_in_any_pieces_give_the_same(input in nearly_resp(), piece in 1_usize..9) {
        check_split(&input, piece);
        check_split(&input, 1);
    }

    #[test]
    fn noise_never_panics(input in proptest::collection::vec(any::<u8>(), 0..300)) {
        check_split(&input, 1);
    }
}
