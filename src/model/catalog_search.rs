//! Search in the tools of an offer, for a model that is given two tools in place of hundreds: one
//! finds tools by words, the other calls what was found.
//!
//! Must not: decide which tools a model has to search for (offer.rs does), or make a call.

use std::sync::{Arc, LazyLock, OnceLock};

use bm25::{DefaultTokenizer, Embedder, EmbedderBuilder, Language, Scorer, Tokenizer};
use heck::ToSnakeCase as _;
use serde_json::value::RawValue;

use super::instructions::{self, Informed};
use super::json::{lossy, no_members};
use super::offer::Ref;
use super::schema::refusal;
use super::sentences;
use super::{
    BackendName, Call, Members, Offer, Own, Route, Table, Target, form, member, own, string_member,
};

use crate::model::maps::HashMap;

/// How many tools an answer has, unless the model says how many.
const FEW: usize = 5;
/// About how many bytes of definitions an answer may have.
const MAX_BYTES: usize = 100 << 10;
/// How many texts are measured for the usual length of one.
const SAMPLE: usize = 500;
/// How deep in a schema names of parameters are looked for.
const DEPTH: usize = 4;

/// Words of models and servers for the same thing or act, a line for each; the first stands for
/// all. They are words of no one server: what helps one alone makes the others harder to find.
const SAME: &str = include_str!("catalog_search/same.txt");

/// The words of tools, read when they are searched for the first time.
#[derive(Default, derive_more::Debug)]
#[debug("Index({} tools)", refs.len())]
pub(super) struct Index {
    refs: Vec<Arc<Ref>>,
    words: OnceLock<Words>,
}

struct Words {
    embedder: Embedder<u32, Reader>,
    scorer: Scorer<u32>,
    names: Vec<String>,
}

impl Index {
    pub(super) fn new(refs: Vec<Arc<Ref>>) -> Self {
        Self { refs, words: OnceLock::new() }
    }

    /// The names of the tools that match, the best first.
    pub(super) fn find(&self, query: &str) -> impl Iterator<Item = &String> {
        let words = self.words.get_or_init(|| Words::new(&self.refs));
        let mut matches = words.scorer.matches(&words.embedder.embed(query));
        // Of equal scores, the first in the offer comes first.
        matches.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
        matches.into_iter().filter_map(|one| words.names.get(one.id as usize))
    }
}

impl Words {
    fn new(refs: &[Arc<Ref>]) -> Self {
        let (names, texts): (Vec<_>, Vec<_>) = refs
            .iter()
            .flat_map(|one| one.tools())
            .map(|(name, tool)| (name.clone(), words(&name, &tool)))
            .unzip();
        let all: Vec<&str> = texts.iter().map(String::as_str).collect();
        // The usual length of a text is that of some: to read all twice takes as long again.
        let some: Vec<&str> = all.iter().step_by(all.len() / SAMPLE + 1).copied().collect();
        let embedder = EmbedderBuilder::with_tokenizer_and_fit_to_corpus(Reader, &some).build();
        let mut scorer = Scorer::new();
        for (id, text) in (0..).zip(all) {
            scorer.upsert(&id, embedder.embed(text));
        }
        Self { embedder, scorer, names }
    }
}

/// The words of a tool: of its name, which counts twice, title, description, and parameters.
fn words(name: &str, tool: &str) -> String {
    let title = string_member(tool, "title").unwrap_or_default();
    let description = string_member(tool, "description").unwrap_or_default();
    let mut words = [name, name, &title, &description].join(" ");
    if let Some(schema) = member(tool, "inputSchema") {
        parameters(schema, DEPTH, &mut words);
    }
    words
}

/// Adds the names of a schema's properties.
fn parameters(schema: &RawValue, depth: usize, words: &mut String) {
    let properties = member(schema.get(), "properties");
    let members = properties.and_then(|properties| Members::read(properties.get()).ok());
    for (name, schema) in members.into_iter().flat_map(|members| members.0) {
        words.push(' ');
        words.push_str(&name);
        if depth > 1 {
            parameters(schema, depth - 1, words);
        }
    }
}

/// Reads the words of a text: their stems, without those that all texts have, and one for all that
/// are the [`SAME`].
struct Reader;

static STEMS: LazyLock<DefaultTokenizer> =
    LazyLock::new(|| DefaultTokenizer::new(Language::English));

static FIRST_OF_SAME: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let mut first_of_same = HashMap::default();
    for group in SAME.lines().map(|group| STEMS.tokenize(group)) {
        let first = group.first().cloned().unwrap_or_default();
        for word in group {
            first_of_same.insert(word, first.clone());
        }
    }
    first_of_same
});

impl Tokenizer for Reader {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let words = STEMS.tokenize(&apart(text)).into_iter();
        words.map(|word| FIRST_OF_SAME.get(&word).cloned().unwrap_or(word)).collect()
    }
}

/// The words of a name or a text, apart. A word like `readFile` or `HTTPGet` is there as a whole
/// and in its parts: `GitHub` is also written `github`.
fn apart(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric()) {
        words.push(word.to_owned());
        let snake_case = word.to_snake_case();
        if snake_case.contains('_') {
            words.push(snake_case.replace('_', " "));
        }
    }
    words.join(" ")
}

/// The answer to a call of [`Own::Find`], for a model that has `offer`. A run has a `table`, and is
/// told of the tools that it can call, by its own names for them: under another name, the model
/// would call a tool of the run's caller in their place. The error is an answer for the model, too.
///
/// The instructions of a server come with its first hit, as `informed` notes.
pub fn find(
    arguments: &str,
    offer: &Offer,
    table: Option<&Table>,
    informed: Option<&Informed>,
) -> Result<String, String> {
    Own::Find.check(arguments)?;
    let query = own::string(arguments, "query")?;
    let limit = own::number(arguments, "limit")?.unwrap_or(FEW);
    let mut tools = Vec::new();
    let mut servers = Vec::new();
    let mut room = MAX_BYTES;
    let definitions = offer.find(&query).filter_map(|name| {
        let own_name = match table {
            Some(table) => table.name_of(name, offer.searched_route(name)?)?,
            None => name,
        };
        Some((name, offer.hidden_definition(name, own_name)?))
    });
    for (name, tool) in definitions.take(limit) {
        // One is answered in any case, however large it is.
        match room.checked_sub(tool.len()) {
            None if !tools.is_empty() => break,
            rest => room = rest.unwrap_or(0),
        }
        tools.push(tool);
        servers.extend(offer.instructions_of(name));
    }
    let instructions = instructions_of(servers, informed);
    let hint = if tools.is_empty() {
        ",\"hint\":\"No tool matches. Try other words for what the tool should do.\""
    } else {
        ""
    };
    Ok(format!("{{\"tools\":[{}]{instructions}{hint}}}", tools.join(",")))
}

/// The member `instructions` for an answer that has tools of these `servers`; empty if the caller
/// has them all.
fn instructions_of(mut servers: Vec<(&BackendName, &str)>, informed: Option<&Informed>) -> String {
    servers.sort();
    servers.dedup();
    let news: Vec<(&BackendName, String)> = servers
        .into_iter()
        .filter_map(|(backend, text)| {
            Some((backend, instructions::with_hit(text, backend, informed)?))
        })
        .collect();
    if news.is_empty() {
        return String::new();
    }
    format!(",\"instructions\":{}", instructions::object(news))
}

/// The call that a call of [`Own::Call`] stands for, and its route, if `tool` knows the name in it.
/// Any other call stays as it is.
pub fn resolved<'a>(
    call: Call,
    route: Route,
    tool: impl FnOnce(&str) -> Option<&'a Route>,
) -> (Call, Route) {
    let inner = match route.target {
        Target::Own(Own::Call) => inner_call(call.args.get()).ok(),
        _ => None,
    };
    match inner.and_then(|(name, args)| Some((tool(&name)?.clone(), name, args))) {
        Some((route, name, args)) => (Call { name, args, ..call }, route),
        None => (call, route),
    }
}

/// Why a call of [`Own::Call`] with these arguments stands for no other: an answer for the model.
pub fn unresolved(arguments: &str) -> String {
    match inner_call(arguments) {
        Ok((name, _)) => sentences::no_such_tool(name),
        Err(mistakes) => mistakes,
    }
}

/// The name and the arguments of the tool that is to be called.
fn inner_call(text: &str) -> Result<(String, Box<RawValue>), String> {
    let arguments = member(text, "arguments").filter(|value| value.get() != "null");
    // Some models write the object as a text.
    let quoted =
        arguments.and_then(|value| lossy(value.get())).filter(|text| text.starts_with('{'));
    let unquoted = quoted.and_then(|text| RawValue::from_string(text.into_owned()).ok());
    if unquoted.is_none() {
        Own::Call.check(&match arguments {
            Some(_) => text.to_owned(),
            None => form::without(text, "arguments"),
        })?;
    }
    // Also where the schema was not checked: with its arguments under another key, the tool would
    // be called without them.
    if let Ok(members) = Members::read(text)
        && (members.duplicate().is_some()
            || members.0.iter().any(|(key, _)| key != "name" && key != "arguments"))
    {
        return Err(refusal("the arguments: give `name` and `arguments`, each once, and no more"));
    }
    let name = own::string(text, "name")?;
    let args = unquoted.or_else(|| arguments.map(RawValue::to_owned));
    Ok((name, args.unwrap_or_else(no_members)))
}

#[cfg(test)]
mod tests {
    //! How texts are read.

    use super::*;

    #[test]
    fn null_arguments_are_none() {
        for text in [r#"{"name":"x","arguments":null}"#, r#"{"name":"x"}"#] {
            let (name, args) = inner_call(text).unwrap();
            assert_eq!((&*name, args.get()), ("x", "{}"), "{text}");
        }
        assert!(inner_call(r#"{"name":"x","arguments":[]}"#).is_err());
        assert!(inner_call(r#"{"name":"x","arguments":{},"arguments":{}}"#).is_err());
    }

    #[test]
    fn names_are_read_by_their_words() {
        for (text, words) in [
            ("read_file", "read file"),
            ("readFile", "readFile read file"),
            ("HTTPGet2", "HTTPGet2 http get2"),
            ("GitHub", "GitHub git hub"),
            ("kebab-case.x", "kebab case x"),
            ("ÄpfelZählen", "ÄpfelZählen äpfel zählen"),
            ("UUID", "UUID"),
            ("", ""),
        ] {
            assert_eq!(apart(text), words, "{text}");
        }
    }

    /// After damage to the journal, only a repeatable call is made again without a record.
    #[test]
    fn a_call_of_an_unknown_tool_is_not_repeatable() {
        assert!(!Route::to(Own::Call).repeatable && Route::to(Own::Find).repeatable);
    }

    #[test]
    fn words_of_the_same_meaning_are_one() {
        for (one, other) in [
            ("remove the folders", "delete a directory"),
            ("GitHub tickets", "github issue"),
            ("Making images", "create picture"),
        ] {
            let [one, other] = [one, other].map(|text| {
                let mut words = Reader.tokenize(text);
                words.retain(|word| word != "git" && word != "hub");
                words
            });
            assert_eq!(one, other);
        }
        assert_eq!(Reader.tokenize("the of and"), Vec::<String>::new());
        // A word in two groups would make them one for whoever writes it, and not for others.
        let all: Vec<String> = SAME.split([';', '\n']).flat_map(|it| STEMS.tokenize(it)).collect();
        for word in &all {
            assert_eq!(all.iter().filter(|other| *other == word).count(), 1, "{word}");
        }
    }
}
