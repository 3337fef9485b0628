//! What a connection chooses for itself: protocol version, name, database, and a password that there is none of.
//! The answers are those of Redis, for clients send these commands unasked and stop at an unexpected one.

use crate::limits::resp::MAX_CLIENT_NAME;
use crate::resp::command::{Call, Flow};
use crate::resp::reply::{self, Version};
use crate::resp::transaction::Transaction;
use crate::status::ErrorKind;

const NO_PASSWORD: &str = "AUTH <password> called without any password configured for the default user. Are you \
                           sure your configuration is correct?";
const BAD_NAME: &str = "Client names cannot contain spaces, newlines or special characters.";

/// What is kept of a connection between commands.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number, from 1 on.
    pub(super) id: u64,
    pub(super) version: Version,
    name: String,
    library: String,
    library_version: String,
    pub(super) transaction: Transaction,
}

impl Session {
    pub(super) const fn new(id: u64) -> Self {
        Self {
            id,
            version: Version::Resp2,
            name: String::new(),
            library: String::new(),
            library_version: String::new(),
            transaction: Transaction::None,
        }
    }
}

impl Call<'_> {
    /// `HELLO [2|3 [AUTH user password] [SETNAME name]]`; nothing changes unless all of it is right.
    pub(super) fn hello(&mut self) -> Flow {
        let mut version = self.session.version;
        if self.args.len() > 1 {
            version = match self.args.at(1) {
                b"2" => Version::Resp2,
                b"3" => Version::Resp3,
                other if other.iter().all(u8::is_ascii_digit) => return self.no_such_protocol(),
                _ => {
                    return self
                        .fail(ErrorKind::BadRequest, "Protocol version is not an integer or out of range");
                }
            };
        }
        let (mut index, mut name) = (2, None);
        while index < self.args.len() {
            let more = self.args.len() - index - 1;
            let option = self.args.at(index);
            if option.eq_ignore_ascii_case(b"auth") && more >= 2 {
                if self.args.at(index + 1) != b"default" {
                    return self.wrong_password();
                }
                index += 3;
            } else if option.eq_ignore_ascii_case(b"setname") && more >= 1 {
                match client_text(self.args.at(index + 1)) {
                    Some(text) => name = Some(text.to_owned()),
                    None => return self.fail(ErrorKind::BadRequest, BAD_NAME),
                }
                index += 2;
            } else {
                let option = String::from_utf8_lossy(option);
                return self.fail(ErrorKind::BadRequest, &format!("Syntax error in HELLO option '{option}'"));
            }
        }
        self.session.version = version;
        if let Some(name) = name {
            self.session.name = name;
        }
        self.greet();
        self.done()
    }

    fn greet(&mut self) {
        let (out, version) = (&mut *self.out, self.session.version);
        reply::map(out, version, 7);
        let mut text = |key: &str, value: &str| {
            reply::bulk(out, key.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        text("server", "snowmint");
        text("version", env!("CARGO_PKG_VERSION"));
        reply::bulk(out, b"proto");
        reply::integer(out, if version == Version::Resp3 { 3 } else { 2 });
        reply::bulk(out, b"id");
        reply::integer(out, self.session.id);
        let mut text = |key: &str, value: &str| {
            reply::bulk(out, key.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        text("mode", "standalone");
        text("role", "master");
        reply::bulk(out, b"modules");
        reply::array(out, 0);
    }

    #[cold]
    fn no_such_protocol(&mut self) -> Flow {
        self.fail_as(ErrorKind::BadRequest, "NOPROTO", "unsupported protocol version")
    }

    #[cold]
    fn wrong_password(&mut self) -> Flow {
        self.fail_as(
            ErrorKind::BadRequest,
            "WRONGPASS",
            "invalid username-password pair or user is disabled.",
        )
    }

    /// There are no passwords: the default user has none to give, and no other user exists.
    pub(super) fn auth(&mut self) -> Flow {
        match (self.args.len(), self.args.at(1)) {
            (2, _) => self.fail(ErrorKind::BadRequest, NO_PASSWORD),
            (3, b"default") => self.ok(),
            (3, _) => self.wrong_password(),
            _ => self.fail(ErrorKind::BadRequest, "syntax error"),
        }
    }

    pub(super) fn select(&mut self) -> Flow {
        match self.args.at(1) {
            b"0" => self.ok(),
            other if !other.is_empty() && other.iter().all(u8::is_ascii_digit) => {
                self.fail(ErrorKind::BadRequest, "DB index is out of range")
            }
            _ => self.fail(ErrorKind::BadRequest, "value is not an integer or out of range"),
        }
    }

    pub(super) fn reset(&mut self) -> Flow {
        self.session.transaction.end(&self.server.queued);
        *self.session = Session::new(self.session.id);
        reply::simple(self.out, "RESET");
        self.done()
    }

    /// `CLIENT ...`: what client libraries send when they connect, and what people ask of their own connection.
    pub(super) fn client(&mut self) -> Flow {
        let sub = self.args.at(1).to_ascii_lowercase();
        match (&*sub, self.args.len()) {
            (b"id", 2) => {
                reply::integer(self.out, self.session.id);
                self.done()
            }
            (b"getname", 2) => {
                if self.session.name.is_empty() {
                    reply::null(self.out, self.session.version);
                } else {
                    reply::bulk(self.out, self.session.name.as_bytes());
                }
                self.done()
            }
            (b"setname", 3) => match client_text(self.args.at(2)) {
                Some(name) => {
                    name.clone_into(&mut self.session.name);
                    self.ok()
                }
                None => self.fail(ErrorKind::BadRequest, BAD_NAME),
            },
            (b"setinfo", 4) => self.client_setinfo(),
            (b"info", 2) => {
                let line = self.client_line();
                reply::verbatim(self.out, self.session.version, &line);
                self.done()
            }
            (b"no-evict" | b"no-touch", 3) => match &*self.args.at(2).to_ascii_lowercase() {
                b"on" | b"off" => self.ok(),
                _ => self.fail(ErrorKind::BadRequest, "syntax error"),
            },
            (b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"no-evict" | b"no-touch", _) => {
                let sub = String::from_utf8_lossy(&sub);
                self.wrong_arity(&format!("client|{sub}"))
            }
            _ => self.unknown_subcommand("CLIENT"),
        }
    }

    fn client_setinfo(&mut self) -> Flow {
        let attribute = self.args.at(2).to_ascii_lowercase();
        let Some(text) = client_text(self.args.at(3)) else {
            let attribute = String::from_utf8_lossy(&attribute);
            let why = format!("{attribute} cannot contain spaces, newlines or special characters.");
            return self.fail(ErrorKind::BadRequest, &why);
        };
        match &*attribute {
            b"lib-name" => text.clone_into(&mut self.session.library),
            b"lib-ver" => text.clone_into(&mut self.session.library_version),
            other => {
                let why = format!("Unrecognized option '{}'", String::from_utf8_lossy(other));
                return self.fail(ErrorKind::BadRequest, &why);
            }
        }
        self.ok()
    }

    fn client_line(&self) -> String {
        let Session { id, version, name, library, library_version, .. } = &*self.session;
        let proto = if *version == Version::Resp3 { 3 } else { 2 };
        format!("id={id} name={name} db=0 resp={proto} lib-name={library} lib-ver={library_version}\n")
    }
}

/// A text that a client gives itself: short, and of visible ASCII only, for it ends up in lines.
fn client_text(bytes: &[u8]) -> Option<&str> {
    let fits = bytes.len() <= MAX_CLIENT_NAME && bytes.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(bytes).ok().filter(|_| fits)
}
