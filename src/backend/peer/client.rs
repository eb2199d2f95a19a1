//! The MCP client of the bridge that has made a call, as the peer of the call sees it.
//!
//! Must not: know the transport of the client.

use std::sync::atomic::AtomicUsize;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::backend::{MAX_QUESTION, Source};
use crate::budget::Budget;
use crate::model::{AppName, member, string_member};

/// The MCP client of the bridge that has made a call: it gets what the MCP server of its tool sends
/// unchanged, as its own protocol is the server's.
#[derive(Debug)]
pub struct McpClient {
    app: AppName,
    /// Takes the parameters of the server's `notifications/progress`; `None` if the client has not
    /// asked for progress.
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    questions: mpsc::Sender<Question>,
    modes: Modes,
    /// Cancelled when there is no time left to answer questions.
    pub(super) draining: CancellationToken,
    /// How many questions wait for their answers.
    pub open_questions: AtomicUsize,
}

/// The kinds of questions that a client can put to its user (the capability `elicitation`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    form: bool,
    url: bool,
}

impl Modes {
    /// Those of a client with these capabilities.
    pub fn from_capabilities(capabilities: Option<&RawValue>) -> Self {
        let elicitation = capabilities.and_then(|all| member(all.get(), "elicitation"));
        let Some(modes) = elicitation.filter(|modes| modes.get().starts_with('{')) else {
            return Self::default();
        };
        let [form, url] = ["form", "url"]
            .map(|key| member(modes.get(), key).is_some_and(|mode| mode.get() != "null"));
        // An empty object means forms (2025-11-25, Elicitation: Capabilities).
        Self { form: !url || form, url }
    }
}

/// A question of an MCP server.
#[derive(Debug)]
pub struct Question {
    /// The server's name of it, if it has one.
    pub key: Option<String>,
    /// Tells it apart from the same question if the server asks that again.
    pub mark: String,
    /// The parameters of `elicitation/create`.
    pub params: Box<RawValue>,
    /// Takes the `ElicitResult`. If it is dropped, the server is told `cancel`.
    pub answer: oneshot::Sender<Box<RawValue>>,
}

impl McpClient {
    /// A client of `app`. Once `draining` is cancelled, its questions are.
    pub fn new(
        app: &AppName,
        progress: Option<mpsc::Sender<Box<RawValue>>>,
        questions: mpsc::Sender<Question>,
        modes: Modes,
        draining: CancellationToken,
    ) -> Self {
        let app = app.clone();
        Self { app, progress, questions, modes, draining, open_questions: AtomicUsize::new(0) }
    }

    /// Hands a question over; `None` if the client does not take it.
    pub(super) fn ask(&self, question: Question) -> Option<()> {
        let takes_mode = match string_member(question.params.get(), "mode").as_deref() {
            Some("url") => self.modes.url,
            _ => self.modes.form,
        };
        if !takes_mode || question.params.get().len() > MAX_QUESTION {
            return None;
        }
        self.questions.try_send(question).ok()
    }

    /// The source of an answer that is made of `result`, counted for the client's app.
    pub(in crate::backend) fn source(&self, result: &RawValue) -> Source {
        let mut room = Budget::of_process().hold_for(Some(self.app.clone()));
        // The result, and the response that is written of it.
        if room.try_resize(2 * result.get().len()) {
            Source::Result { json: result.to_owned(), is_cut: false, held: room }
        } else {
            Source::NoRoom
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which questions a client takes.

    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::backend::fake;
    use crate::backend::fake::Permitted;
    use crate::backend::peer::Progress;
    use crate::model::rights::{CallRefusal, Permission};

    #[test]
    fn a_client_is_asked_as_its_capabilities_say() {
        let modes = |text: &str| {
            let capabilities = RawValue::from_string(text.to_owned()).unwrap();
            let Modes { form, url } = Modes::from_capabilities(Some(&capabilities));
            (form, url)
        };
        assert_eq!(modes("{}"), (false, false));
        assert_eq!(modes(r#"{"elicitation":null}"#), (false, false));
        assert_eq!(modes(r#"{"elicitation":{}}"#), (true, false));
        assert_eq!(modes(r#"{"elicitation":{"form":{}}}"#), (true, false));
        assert_eq!(modes(r#"{"elicitation":{"url":{}}}"#), (false, true));
        assert_eq!(modes(r#"{"elicitation":{"form":{},"url":{}}}"#), (true, true));
        assert_eq!(modes(r#"{"elicitation":{"form":{},"url":null}}"#), (true, false));
        assert_eq!(modes(r#"{"elicitation":{"form":null,"url":{}}}"#), (false, true));
        assert_eq!(Modes::from_capabilities(None), Modes::default());
    }

    #[tokio::test]
    async fn a_question_waits_for_the_client_and_is_over_with_it() {
        let (asks, mut questions) = mpsc::channel(1);
        let modes = Modes { form: true, url: false };
        let client =
            McpClient::new(&AppName::from("a"), None, asks, modes, CancellationToken::new());
        let ask = |text: &str| {
            let (answer, answered) = oneshot::channel();
            let params = RawValue::from_string(text.to_owned()).unwrap();
            client.ask(Question { key: None, mark: String::new(), params, answer })?;
            Some(answered)
        };
        assert!(ask(r#"{"mode":"url"}"#).is_none());
        let answered = ask(r#"{"message":"?"}"#).unwrap();
        assert!(ask("{}").is_none(), "one at a time");
        drop(questions.recv().await.unwrap());
        assert!(answered.await.is_err());
        drop(questions);
        assert!(ask("{}").is_none(), "the client is gone");
    }

    /// The progress of a call of a client that takes two questions, and what may be asked.
    fn asking() -> (Progress, Arc<Permitted>, Arc<McpClient>, mpsc::Receiver<Question>) {
        let (asks, questions) = mpsc::channel(2);
        let modes = Modes { form: true, url: false };
        let stop = CancellationToken::new();
        let client = Arc::new(McpClient::new(&AppName::from("a"), None, asks, modes, stop));
        let permitted = Permitted::new();
        let request = Arc::new(fake::request("t", "{}"));
        let progress =
            Progress::new(Some(Arc::clone(&client)), None, Arc::clone(&permitted) as _, request);
        (progress, permitted, client, questions)
    }

    #[test]
    fn words_of_a_peer_reach_a_client_that_asked_for_progress() {
        let (asks, _questions) = mpsc::channel(1);
        let (reports, mut told) = mpsc::channel(2);
        let (app, stop) = (AppName::from("a"), CancellationToken::new());
        let client = McpClient::new(&app, Some(reports), asks, Modes::default(), stop);
        let request = Arc::new(fake::request("t", "{}"));
        let permitted = Permitted::new() as _;
        let progress = Progress::new(Some(Arc::new(client)), None, permitted, request);
        for text in ["a", "\"b\"", "a slow client misses this"] {
            assert_eq!(progress.tell(text.to_owned()), text);
        }
        let mut next = || told.try_recv().map(|params| params.get().to_owned());
        assert_eq!(next().unwrap(), r#"{"message":"a","progress":1}"#);
        assert_eq!(next().unwrap(), r#"{"message":"\"b\"","progress":2}"#);
        assert!(next().is_err());
    }

    #[tokio::test]
    async fn questions_are_counted_until_the_last_is_answered() {
        let (progress, _permitted, client, mut questions) = asking();
        let open = || client.open_questions.load(Ordering::Relaxed);
        let text = || RawValue::from_string("{}".to_owned()).unwrap();
        let mut asked = [
            Box::pin(progress.ask(None, "1".to_owned(), text())),
            Box::pin(progress.ask(None, "1".to_owned(), text())),
        ];
        for one in &mut asked {
            assert!(futures_util::poll!(one).is_pending());
        }
        assert_eq!(open(), 2);
        let [first, second] = asked;
        for (one, left) in [(first, 1), (second, 0)] {
            questions.recv().await.unwrap().answer.send(text()).unwrap();
            assert!(one.await.is_some());
            assert_eq!(open(), left);
        }
    }

    #[tokio::test]
    async fn question_that_is_too_long_or_not_permitted_is_not_asked() {
        let (progress, permitted, client, mut questions) = asking();
        let long = format!("\"{}\"", "x".repeat(MAX_QUESTION));
        assert!(
            progress
                .ask(None, "1".to_owned(), RawValue::from_string(long).unwrap())
                .await
                .is_none()
        );
        permitted.0.send_replace(Permission::Refused(CallRefusal::Backend));
        let short = RawValue::from_string("{}".to_owned()).unwrap();
        assert!(progress.ask(None, "1".to_owned(), short).await.is_none());
        assert!(questions.try_recv().is_err());
        assert_eq!(client.open_questions.load(Ordering::Relaxed), 0);
    }
}
