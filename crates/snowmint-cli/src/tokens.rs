//! Words from standard input, as they arrive: separated by blanks, line ends or commas.
//! Memory is bounded whatever comes: a word that no id is as long as is cut.

use std::io::{self, BufRead};

/// Longer than an id in any form; what is beyond is left out.
const MAX_LEN: usize = 64;

/// Calls `each` with every word; `pause` before it waits for more input.
pub(crate) fn each_word<E>(
    input: &mut impl BufRead,
    mut pause: impl FnMut() -> Result<(), E>,
    mut each: impl FnMut(&str) -> Result<(), E>,
) -> Result<io::Result<()>, E> {
    let mut word = Vec::with_capacity(MAX_LEN);
    loop {
        pause()?;
        let room = match input.fill_buf() {
            Ok(room) => room,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok(Err(error)),
        };
        let read = room.len();
        for &byte in room {
            if byte.is_ascii_whitespace() || byte == b',' {
                finish(&mut word, &mut each)?;
            } else if word.len() < MAX_LEN {
                word.push(byte);
            }
        }
        if read == 0 {
            finish(&mut word, &mut each)?;
            return Ok(Ok(()));
        }
        input.consume(read);
    }
}

fn finish<E>(word: &mut Vec<u8>, each: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    if !word.is_empty() {
        each(&String::from_utf8_lossy(word))?;
        word.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::io::BufReader;

    fn words(input: &[u8], room: usize) -> Vec<String> {
        let mut words = Vec::new();
        let mut input = BufReader::with_capacity(room, input);
        let read = each_word::<Infallible>(
            &mut input,
            || Ok(()),
            |word| {
                words.push(word.to_owned());
                Ok(())
            },
        );
        read.unwrap().unwrap();
        words
    }

    #[test]
    fn words_survive_every_split_of_the_input() {
        for room in 1..12 {
            assert_eq!(words(b" 12, 34\r\n\n56,,7\t8", room), ["12", "34", "56", "7", "8"]);
        }
        assert!(words(b" \n,", 4).is_empty());
    }

    #[test]
    fn an_endless_word_is_cut() {
        let long = vec![b'9'; 100_000];
        assert_eq!(words(&long, 4096), ["9".repeat(MAX_LEN)]);
    }
}
