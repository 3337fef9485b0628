//! The client accepts an answer completely or not at all: exactly the requested number of ids, all below
//! 2^63.
#![cfg_attr(fuzzing, no_main)]

snowmint_fuzz::fuzz_target!(|input: (u8, &str)| {
    let (count, body) = input;
    let count = u64::from(count);
    let Some(ranges) = snowmint_client::read_answer(body.as_bytes(), count) else { return };
    assert_eq!(ranges.iter().map(|(_, _, count)| count).sum::<u64>(), count, "{body}");
    for (first, last, count) in ranges {
        assert!(if count == 1 { first == last } else { first < last }, "{body}");
    }
});
