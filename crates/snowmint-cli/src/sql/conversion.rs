//! `snowmint sql --convert`: a column whose numbers a sequence made gets the ids of the installed functions,
//! and back.
//!
//! The script finds out in the database what to do, so that it is printed without a connection.

use std::str::FromStr;

/// The flags of a conversion.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ConversionArgs {
    /// Print SQL that lets the installed functions make the ids of a serial or identity column (PostgreSQL).
    /// Names as in the database, quoted if they have a dot; default schema: that of the functions
    #[arg(long, value_name = "TABLE.COLUMN")]
    convert: Option<Column>,
    /// With --convert, also change integer columns to bigint: this one, and those that refer to it by foreign
    /// keys. PostgreSQL writes their tables again, and locks them until the transaction ends
    #[arg(long, requires = "convert", conflicts_with = "revert")]
    rewrite: bool,
    /// With --convert, print SQL that makes it a serial or identity column again. Its sequence continues
    /// where it was; bigint columns and existing ids stay
    #[arg(long, requires = "convert")]
    revert: bool,
}

/// What to print for a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// Its ids come from the functions. Columns that are too narrow for ids are an error.
    Convert,
    /// The same, and columns that are too narrow become `bigint`.
    ConvertAndRewrite,
    /// Its numbers come from its sequence again.
    Revert,
}

impl ConversionArgs {
    /// Returns the column to change, and how.
    pub(super) fn of_column(&self) -> Option<(&Column, Conversion)> {
        let how = match (self.rewrite, self.revert) {
            (_, true) => Conversion::Revert,
            (true, false) => Conversion::ConvertAndRewrite,
            (false, false) => Conversion::Convert,
        };
        self.convert.as_ref().map(|column| (column, how))
    }
}

/// A column of a table, with any names that PostgreSQL allows but those with control characters, which could
/// end a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) schema: Option<String>,
    pub(super) table: String,
    pub(super) name: String,
}

/// The maximum length of a name. PostgreSQL cuts longer ones, and could then find another table.
const MAX_NAME: usize = 63;

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected TABLE.COLUMN or SCHEMA.TABLE.COLUMN, such as orders.id or app.orders.id; \
            a name with a dot or quotes: 'app.\"my.orders\".id'";
        let mut names = names(text).ok_or(expected)?;
        if names.iter().any(|name| name.len() > MAX_NAME || name.chars().any(char::is_control)) {
            return Err(format!("expected names of 1 to {MAX_NAME} bytes, without control characters"));
        }
        let (name, table) = (names.pop().ok_or(expected)?, names.pop().ok_or(expected)?);
        let schema = names.pop();
        if !names.is_empty() {
            return Err(expected.to_owned());
        }
        Ok(Self { schema, table, name })
    }
}

/// Splits names at dots. A name in double quotes may have dots, and quotes twice.
fn names(text: &str) -> Option<Vec<String>> {
    let (mut names, mut rest) = (Vec::new(), text);
    loop {
        let name;
        (name, rest) = if let Some(quoted) = rest.strip_prefix('"') {
            quoted_name(quoted)?
        } else {
            let (name, rest) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
            (name.to_owned(), rest)
        };
        if name.is_empty() {
            return None;
        }
        names.push(name);
        match rest.strip_prefix('.') {
            Some(next) => rest = next,
            None if rest.is_empty() => return Some(names),
            None => return None,
        }
    }
}

/// Returns a name up to its closing quote, and the text behind that.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('"')?;
        name += before;
        match after.strip_prefix('"') {
            Some(next) => {
                name.push('"');
                rest = next;
            }
            None => return Some((name, after)),
        }
    }
}

/// Returns a name as PostgreSQL reads it in a comment, for people.
pub(super) fn shown(name: &str) -> String {
    let is_plain = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'));
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Returns a text as an expression inside of a body between dollar quotes.
///
/// A dollar sign stands by itself, so that the text cannot end the body. A backslash is read as itself,
/// whatever `standard_conforming_strings` is.
pub(super) fn literal(text: &str) -> String {
    let quoted = |part: &str| {
        let start = if part.contains('\\') { "E" } else { "" };
        format!("{start}'{}'", part.replace('\\', "\\\\").replace('\'', "''"))
    };
    let parts: Vec<_> = text.split('$').map(quoted).collect();
    match &*parts {
        [whole] => whole.clone(),
        _ => format!("pg_catalog.concat({})", parts.join(", '$', ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(schema: Option<&str>, table: &str, name: &str) -> Column {
        Column { schema: schema.map(ToOwned::to_owned), table: table.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn columns_have_one_to_three_names() {
        assert_eq!("orders.id".parse(), Ok(column(None, "orders", "id")));
        assert_eq!("app.Orders.Id".parse(), Ok(column(Some("app"), "Orders", "Id")));
        assert_eq!("\"a.b\".\"c\"\"d\".é f".parse(), Ok(column(Some("a.b"), "c\"d", "é f")));
        for bad in ["", "id", ".", "a.", ".a", "a..b", "a.b.c.d", "\"a.b", "\"a\"b.c", "\"\".a", "a.b\n"] {
            bad.parse::<Column>().unwrap_err();
        }
        assert!(format!("a.{}", "b".repeat(63)).parse::<Column>().is_ok());
        assert!(format!("a.{}", "b".repeat(64)).parse::<Column>().unwrap_err().contains("63 bytes"));
    }

    #[test]
    fn a_literal_ends_neither_itself_nor_the_body_around_it() {
        assert_eq!(literal("orders"), "'orders'");
        assert_eq!(literal("o'r"), "'o''r'");
        assert_eq!(literal("$convert$"), "pg_catalog.concat('', '$', 'convert', '$', '')");
        assert_eq!(literal("a\\'$"), "pg_catalog.concat(E'a\\\\''', '$', '')");
    }

    #[test]
    fn names_are_shown_as_sql_has_them() {
        for (name, wanted) in [("orders_2", "orders_2"), ("Or\"d", "\"Or\"\"d\""), ("2a", "\"2a\"")] {
            assert_eq!(shown(name), wanted);
        }
    }
}
