//! A file of namespaces is accepted, or rejected with the number of a line; a text form reads back every
//! number that it writes; the short texts of the cluster crate read back as the same values.
#![cfg_attr(fuzzing, no_main)]

use std::fmt::Display;
use std::str::FromStr;

use snowmint::Layout;
use snowmint_cluster::WorkerCount;
use snowmint_cluster::namespace::{CounterSource, NamespaceFile, NamespaceName, TextForm};
use snowmint_cluster::segment::Stripe;

snowmint_fuzz::fuzz_target!(|input: (u64, u64, &str)| {
    let (number, unix_ms, text) = input;
    // Numbers have 63 bits.
    let number = number >> 1;
    if let Err(error) = NamespaceFile::parse(text, &Layout::TWITTER) {
        assert!(!error.message.is_empty());
        assert!(
            error.line.is_none_or(|line| (1..=text.matches('\n').count() + 1).contains(&line)),
            "{error}"
        );
    }
    if let Ok(form) = text.parse::<TextForm>() {
        assert_eq!(form.to_string().parse(), Ok(form.clone()));
        let mut written = Vec::new();
        form.write_number(number, unix_ms, &mut written);
        let written = std::str::from_utf8(&written).unwrap();
        assert!(form.read_number(written).is_none_or(|read| read == number), "{written:?} of {text:?}");
        // A number that is read from any text is written and read back as the same number.
        if let Some(read) = form.read_number(text) {
            let mut again = Vec::new();
            form.write_number(read, unix_ms, &mut again);
            assert!(form.read_number(std::str::from_utf8(&again).unwrap()) == Some(read));
        }
    }
    is_what_it_writes::<CounterSource>(text);
    is_what_it_writes::<NamespaceName>(text);
    is_what_it_writes::<WorkerCount>(text);
    is_what_it_writes::<Stripe>(text);
});

fn is_what_it_writes<T: FromStr + Display + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let written = value.to_string();
        assert!(written.parse::<T>().is_ok_and(|again| again == value), "{text:?} is written as {written:?}");
    }
}
