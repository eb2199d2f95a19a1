//! Puts references in place of the secrets in a text: a value, an option, an address, a line of a
//! shell, JSON.
//!
//! A text is taken apart as far as needed, so that all of it works as before once the person has
//! set the variables. The references in it are private characters meanwhile, which say nothing.
//!
//! Must not: judge a single word; `looks` does.

use serde_json::Value;

use super::looks::{Naming, is_digit, is_everyday, is_everyday_name, naming, says_how_to_log_in};
use super::secrets::{Place, Vault};

/// The schemes in front of a credential in a header.
const SCHEMES: [&str; 5] = ["Bearer", "Basic", "Token", "ApiKey", "Digest"];
/// What is pending behind an option that takes `user:password`.
const LOGIN_OPTION: &str = "-u";
/// The first character that stands for a reference.
const FIRST: u32 = 0xE000;

impl Vault {
    /// `text` with references in place of its secrets.
    pub(super) fn hide(&mut self, text: &str, at: Place<'_>) -> String {
        if text.contains(stands_for_reference) {
            return self.keep(text, at);
        }
        let (marked, references) = marked(text);
        if marked.chars().all(|c| stands_for_reference(c) || c.is_whitespace()) {
            return text.to_owned();
        }
        let hidden = self.hide_marked(&marked, at);
        restored(&hidden, &references)
    }

    fn hide_marked(&mut self, text: &str, at: Place<'_>) -> String {
        if let Some(begin) = text.find(['{', '['])
            && let (before, json) = text.split_at(begin)
            && let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(json)
        {
            if naming(at.key) == Naming::Secret && !is_of_headers(at.key) {
                return self.hide_value(text, at);
            }
            let mut key = String::new();
            let before = self.hide_line(before, at, &mut key);
            let key = if key.is_empty() { at.key } else { &key };
            return before + &self.hide_json(&value, Place { key, is_variable: false, ..at });
        }
        if is_address(text) {
            return self.hide_address(text, at);
        }
        match naming(at.key) {
            Naming::Secret => return self.hide_value(text, at),
            Naming::Login if !says_how_to_log_in(text) => return self.hide_value(text, at),
            _ => {}
        }
        if matches!(at.key, "u" | "user" | "proxy-user") && !at.is_variable {
            return self.hide_login(text, at);
        }
        // A header, or an option with a value of several words.
        if let Some((key, separator, value)) = assignment(text)
            && !at.is_shell
            && !value.is_empty()
            && names_secret(key, value)
        {
            let inner = Place { key: key.trim_start_matches('-'), is_variable: false, ..at };
            return format!("{key}{separator}{}", self.hide_value(value, inner));
        }
        self.hide_line(text, at, &mut String::new())
    }

    /// Hides all of a value whose name says that it is a secret, but for the scheme in front of a
    /// credential.
    fn hide_value(&mut self, text: &str, at: Place<'_>) -> String {
        let value = text.trim_start();
        let (space, _) = text.split_at(text.len() - value.len());
        let everyday_path = is_rooted(value) && is_everyday(value);
        if matches!(value, "" | "true" | "false") || is_variable_of_shell(value) || everyday_path {
            return text.to_owned();
        }
        if let Some((scheme, rest)) = value.split_once(' ')
            && is_scheme(scheme)
        {
            return format!("{space}{scheme} {}", self.hide_value(rest, at));
        }
        if !value.contains(stands_for_reference) {
            return format!("{space}{}", self.keep(value, at));
        }
        // A variable's value cannot have the reference in it. Words between references are no
        // secret.
        let mut out = space.to_owned();
        for piece in value.split_inclusive(stands_for_reference) {
            let literal = piece.trim_end_matches(stands_for_reference);
            if is_everyday(literal) && !literal.contains(is_digit) {
                out += literal;
            } else {
                out += &self.keep(literal, at);
            }
            out += piece.split_at(literal.len()).1;
        }
        out
    }

    /// JSON with references inside of its texts.
    fn hide_json(&mut self, value: &Value, at: Place<'_>) -> String {
        match value {
            Value::Object(members) => {
                let mut texts = Vec::new();
                for (key, member) in members {
                    let place = match naming(at.key) {
                        // The names of headers tell more than the name of their map.
                        Naming::Secret if !is_of_headers(at.key) => at,
                        _ => Place { key, ..at },
                    };
                    let name = if is_everyday_name(key) { key.clone() } else { self.keep(key, at) };
                    texts.push(format!("{}:{}", Value::from(name), self.hide_json(member, place)));
                }
                format!("{{{}}}", texts.join(","))
            }
            Value::Array(items) => {
                let mut texts = Vec::new();
                let mut context = Context::default();
                for item in items {
                    texts.push(self.hide_json(item, context.place(item, at)));
                    context.pass(item);
                }
                format!("[{}]", texts.join(","))
            }
            Value::String(_) => {
                // With its escapes, as the variable's value is put into the JSON as it is.
                let quoted = value.to_string();
                let inside = quoted.trim_start_matches('"').get(..quoted.len() - 2);
                format!("\"{}\"", self.hide_marked(inside.unwrap_or_default(), at))
            }
            Value::Number(number) => self.hide_marked(&number.to_string(), at),
            Value::Null | Value::Bool(_) => value.to_string(),
        }
    }

    /// Hides words of a line. `key` is the option or variable whose value comes next.
    fn hide_line(&mut self, text: &str, at: Place<'_>, key: &mut String) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (_, behind) = rest.split_at(first.len_utf8());
            if matches!(first, '"' | '\'')
                && !key.is_empty()
                && let Some((inside, after)) = behind.split_once(first)
            {
                let place = Place { key, is_variable: false, ..at };
                // A `\` belongs to the quotation mark of JSON in a text.
                let value = inside.trim_end_matches('\\');
                let (_, escapes) = inside.split_at(value.len());
                out += &format!("{first}{}{escapes}{first}", self.hide_value(value, place));
                key.clear();
                rest = after;
                continue;
            }
            if is_separator(first) {
                if matches!(first, ';' | '|' | '\n') {
                    key.clear();
                }
                out.push(first);
                rest = behind;
                continue;
            }
            let end = rest.find(is_separator).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            out += &self.hide_words(word, at, key);
            // A name in quotes, as in JSON that is not whole.
            let value = after.trim_start_matches(['"', '\'', ' ', '\\']);
            if value.starts_with([':', '=']) && names_secret(word, "") {
                word.trim_end_matches('\\').clone_into(key);
                let (separator, behind) = after.split_at(after.len() - value.len() + 1);
                out += separator;
                rest = behind;
                continue;
            }
            rest = after;
        }
        out
    }

    /// Hides one word of a line, or several with `&` between them.
    fn hide_words(&mut self, word: &str, at: Place<'_>, key: &mut String) -> String {
        if is_address(word) {
            key.clear();
            return self.hide_address(word, at);
        }
        if !word.contains('&') {
            return self.hide_word(word, at, key);
        }
        let mut words = Vec::new();
        for word in word.split('&') {
            words.push(self.hide_word(word, at, key));
            if !word.is_empty() {
                key.clear();
            }
        }
        words.join("&")
    }

    fn hide_word(&mut self, word: &str, at: Place<'_>, key: &mut String) -> String {
        // An empty word, too.
        if word.chars().all(|c| matches!(c, ':' | '=' | '-' | '+' | '\\')) {
            return word.to_owned();
        }
        if is_scheme(word) && (!key.is_empty() || word.eq_ignore_ascii_case("bearer")) {
            if key.is_empty() {
                "authorization".clone_into(key);
            }
            return word.to_owned();
        }
        if !key.is_empty() && !word.starts_with("--") {
            let name = std::mem::take(key);
            if name == LOGIN_OPTION {
                return self.hide_login(word, at);
            }
            if !names_secret(&name, word) {
                return word.to_owned();
            }
            return self.hide_value(word, Place { key: &name, is_variable: false, ..at });
        }
        key.clear();
        if let Some(Login { user, password, host }) = login(word) {
            let place = Place { key: "password", is_variable: false, ..at };
            return format!("{user}:{}@{host}", self.hide_value(password, place));
        }
        if let Some((name, separator, value)) = assignment(word) {
            let inner =
                Place { key: name.trim_start_matches(['-', '/']), is_variable: false, ..at };
            if !names_secret(name, value) {
                return format!("{name}{separator}{}", self.hide_words(value, inner, key));
            }
            if value.is_empty() || is_scheme(value) {
                inner.key.clone_into(key);
                return word.to_owned();
            }
            return format!("{name}{separator}{}", self.hide_value(value, inner));
        }
        if matches!(word, "-u" | "--user" | "--proxy-user") {
            LOGIN_OPTION.clone_into(key);
            return word.to_owned();
        }
        if word.starts_with('-') && names_secret(word, "") {
            word.trim_start_matches('-').clone_into(key);
            return word.to_owned();
        }
        self.hide_path(word, at)
    }

    /// Hides the password in `user:password`, as curl takes it.
    fn hide_login(&mut self, text: &str, at: Place<'_>) -> String {
        match text.split_once(':') {
            // The numbers of a user and a group.
            Some((_, group)) if group.chars().all(is_digit) => text.to_owned(),
            Some((user, password)) => {
                let place = Place { key: "password", is_variable: false, ..at };
                format!("{user}:{}", self.hide_value(password, place))
            }
            None => self.hide_path(text, at),
        }
    }

    /// Hides what is no everyday text of a path, or all of a text that is none.
    fn hide_path(&mut self, text: &str, at: Place<'_>) -> String {
        if is_everyday(without_digest(text)) {
            return text.to_owned();
        }
        if !is_rooted(text) {
            let short = text.split_at_checked(2).filter(|(option, _)| option.starts_with('-'));
            return match short.filter(|(option, _)| *option != "--") {
                Some((option, value)) => format!("{option}{}", self.hide_value(value, at)),
                None => self.hide_value(text, at),
            };
        }
        let parts: Vec<&str> = text.split(['/', '\\']).collect();
        let first = parts.iter().position(|part| !is_everyday(part));
        let last = parts.iter().rposition(|part| !is_everyday(part));
        let (Some(first), Some(last)) = (first, last) else {
            // No part alone is strange: all of them are, between the first and the last slash.
            let Some(begin) = text.find(['/', '\\']) else { return self.keep(text, at) };
            let (before, behind) = text.split_at(begin + 1);
            return format!("{before}{}", self.hide_value(behind, at));
        };
        let begin = parts[..first].iter().map(|part| part.len() + 1).sum::<usize>();
        let end = parts[..=last].iter().map(|part| part.len() + 1).sum::<usize>() - 1;
        let (text, behind) = text.split_at(end);
        let (before, hidden) = text.split_at(begin);
        format!("{before}{}{behind}", self.hide_value(hidden, at))
    }

    /// Hides the secrets in an address: user, password, parameters, and parts of its path. Not
    /// parsed as a URL, as it may contain references.
    fn hide_address(&mut self, text: &str, at: Place<'_>) -> String {
        let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(r, f)| (r, Some(f)));
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let at = Place { is_variable: false, ..at };
        let scheme = self.hide_words_before(scheme, at);
        let mut out = format!("{scheme}://{}", self.hide_authority(authority, at));
        match path.split_once("://").and_then(|(before, _)| before.rfind('/')) {
            // An address in the path of another one.
            Some(slash) => {
                let (before, inner) = path.split_at(slash + 1);
                out += &self.hide_path(before, at);
                out += &self.hide_address(inner, at);
            }
            None => out += &self.hide_path(path, at),
        }
        for (count, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            out.push(if count == 0 { '?' } else { '&' });
            out += &self.hide_parameter(pair, at);
        }
        if let Some(fragment) = fragment {
            out.push('#');
            out += &self.hide_parameter(fragment, at);
        }
        let key_names_secret = naming(at.key) == Naming::Secret && !at.key.is_empty();
        if key_names_secret && out == text { self.hide_value(text, at) } else { out }
    }

    /// What stands before `://`: the scheme, perhaps behind an option and `=`.
    fn hide_words_before(&mut self, scheme: &str, at: Place<'_>) -> String {
        match scheme.rsplit_once(['=', ':']) {
            Some((before, name)) => {
                let (_, rest) = scheme.split_at(before.len());
                let (separator, _) = rest.split_at(rest.len() - name.len());
                format!("{}{separator}{name}", self.hide_line(before, at, &mut String::new()))
            }
            None => scheme.to_owned(),
        }
    }

    fn hide_authority(&mut self, authority: &str, at: Place<'_>) -> String {
        let Some((login, host)) = authority.rsplit_once('@') else {
            // A name of a host that nobody could remember gives access by itself.
            if authority.split('.').all(|label| label.len() < 20 || is_everyday(label)) {
                return authority.to_owned();
            }
            return self.hide_value(authority, Place { key: "host", ..at });
        };
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let user_at = Place { key: "user", ..at };
        let plain_user = is_everyday(user) && !(password.is_empty() && user.contains(is_digit));
        let mut out = if plain_user { user.to_owned() } else { self.hide_value(user, user_at) };
        if !password.is_empty() {
            out.push(':');
            out += &self.hide_value(password, Place { key: "password", ..at });
        }
        format!("{out}@{host}")
    }

    fn hide_parameter(&mut self, pair: &str, at: Place<'_>) -> String {
        let Some((name, value)) = pair.split_once('=') else { return self.hide_path(pair, at) };
        let inner = Place { key: name, ..at };
        let value = if names_secret(name, value) {
            self.hide_value(value, inner)
        } else if value.contains("://") {
            self.hide_address(value, inner)
        } else {
            self.hide_path(value, inner)
        };
        format!("{name}={value}")
    }
}

/// What stands before an item of a list, as far as it says something about the item.
#[derive(Default)]
pub(super) struct Context {
    option: String,
}

impl Context {
    /// The place of `item`.
    pub(super) fn place<'p>(&'p self, item: &Value, at: Place<'p>) -> Place<'p> {
        let shells = ["-c", "-lc", "-ic", "-lic", "/c", "/k", "-command"];
        if shells.iter().any(|option| self.option.eq_ignore_ascii_case(option)) {
            return Place { is_shell: true, ..at };
        }
        let name = self.option.trim_start_matches('-');
        if name.is_empty() || item.as_str().is_some_and(|text| text.starts_with("--")) {
            return at;
        }
        Place { key: name, ..at }
    }

    /// Notes that `item` stands before the next one.
    pub(super) fn pass(&mut self, item: &Value) {
        self.option.clear();
        let text = item.as_str().unwrap_or_default();
        let option = text.starts_with('-') || matches!(text, "/c" | "/C" | "/k" | "/K");
        if option && !text.contains(['=', ' ']) {
            text.clone_into(&mut self.option);
        }
    }
}

fn marked(text: &str) -> (String, Vec<String>) {
    let mut out = String::new();
    let mut references = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        out += before;
        let reference =
            behind.split_once('}').filter(|(inside, _)| !before.ends_with('$') && is_plain(inside));
        let mark = u32::try_from(references.len()).ok().and_then(|at| char::from_u32(FIRST + at));
        match (reference, mark.filter(|mark| stands_for_reference(*mark))) {
            (Some((inside, after)), Some(mark)) => {
                references.push(format!("${{{inside}}}"));
                out.push(mark);
                rest = after;
            }
            _ => {
                out += "${";
                rest = behind;
            }
        }
    }
    (out + rest, references)
}

/// Whether a reference has no secret in it: neither in the place of its name, nor as its default.
fn is_plain(inside: &str) -> bool {
    let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
    is_everyday_name(name) && is_everyday(default)
}

fn restored(text: &str, references: &[String]) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let at = u32::from(c).checked_sub(FIRST).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| references.get(at)) {
            Some(reference) => out += reference,
            None => out.push(c),
        }
    }
    out
}

fn stands_for_reference(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}')
}

/// Whether `text` is one address, perhaps behind an option and `=`.
fn is_address(text: &str) -> bool {
    let addresses = text.split(',').filter(|part| part.contains("://")).count();
    addresses == 1 && !text.contains(|c: char| c.is_whitespace() || "\"'`<>|;".contains(c))
}

/// Whether `text` begins as a path does; its words then say where a file is, and are shown.
fn is_rooted(text: &str) -> bool {
    let text = text.trim_start_matches(stands_for_reference);
    let drive_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
    ["/", "./", "../", "~/", "\\"].iter().any(|root| text.starts_with(root))
        || drive_letter && matches!(text.get(1..3), Some(":\\" | ":/"))
}

/// An image's name without its digest, which is public.
fn without_digest(text: &str) -> &str {
    match text.rsplit_once("@sha256:") {
        Some((image, digest))
            if digest.len() == 64 && digest.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            image
        }
        _ => text,
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word))
}

/// `$NAME` and `%NAME%`, which the shell replaces.
fn is_variable_of_shell(value: &str) -> bool {
    let name = value.strip_prefix('$').or_else(|| value.strip_prefix('%')?.strip_suffix('%'));
    name.is_some_and(|name| {
        !name.is_empty()
            && is_everyday(name)
            && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    })
}

fn is_of_headers(key: &str) -> bool {
    key.to_ascii_lowercase().contains("headers")
}

fn names_secret(key: &str, value: &str) -> bool {
    match naming(key) {
        Naming::Secret => true,
        Naming::Login => !says_how_to_log_in(value),
        Naming::Other => false,
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`;|<>(){}[],".contains(c)
}

/// `user:password@host` without a scheme.
struct Login<'w> {
    user: &'w str,
    password: &'w str,
    host: &'w str,
}

fn login(word: &str) -> Option<Login<'_>> {
    let (login, host) = word.rsplit_once('@')?;
    let (user, password) = login.split_once(':')?;
    // A package, or the digest of an image.
    if matches!(user, "npm" | "jsr") || host.starts_with("sha256:") {
        return None;
    }
    if [user, password, host].contains(&"") || login.contains(['/', '=']) {
        return None;
    }
    Some(Login { user, password, host })
}

/// The three parts of `--option=value`, `NAME=value` or `Header: value`.
fn assignment(text: &str) -> Option<(&str, char, &str)> {
    let at = text.find(['=', ':'])?;
    let (key, rest) = text.split_at(at);
    let (separator, value) = (rest.chars().next()?, rest.get(1..)?);
    if key.is_empty() || key.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c)) {
        return None;
    }
    if is_rooted_name(key) {
        return None;
    }
    Some((key, separator, value))
}

/// A path, whose `:` or `=` belongs to its name, and no option of Windows such as `/p:x`.
fn is_rooted_name(key: &str) -> bool {
    key.get(1..).is_some_and(|rest| rest.contains('/')) && is_rooted(key)
}
