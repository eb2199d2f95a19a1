//! What the operator should know of an agent that can be called: what its card asks for, and what
//! is not as the card says.
//!
//! Must not: say that the agent cannot be called (`Readiness` does), or show an app the agent's own
//! words.

use crate::backend::Remark;
use crate::backend::diagnosis::all_in_one;
use crate::model::card::Card;
use crate::model::card::security::Scheme;
use crate::model::visible;

/// The findings on one agent.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// How its card wants clients to prove who they are.
    pub(super) schemes: Vec<Scheme>,
    /// On the extensions that its card requires.
    extensions: Option<Remark>,
    /// On the extended card, if the agent was asked for it and has not given it.
    pub(super) extended_card: Option<Remark>,
    /// On the interface that calls go to, if it is not the first one.
    pub(super) interface: Option<Remark>,
}

impl Findings {
    /// Takes what the last card says; `configured` are the extensions that requests name.
    pub(super) fn read_card(&mut self, card: &Card, configured: &[String]) {
        self.schemes.clone_from(&card.schemes);
        let required = card.required_extensions.iter();
        let missing: Vec<String> = required
            .filter(|uri| !configured.contains(uri))
            .map(|uri| visible::line(uri, 200))
            .collect();
        self.extensions =
            if missing.is_empty() { None } else { Some(unnamed_extensions(&missing)) };
    }

    /// All findings in one.
    pub(super) fn remark(&self) -> Option<Remark> {
        all_in_one([&self.interface, &self.extensions, &self.extended_card])
    }
}

fn unnamed_extensions(missing: &[String]) -> Remark {
    Remark {
        message:
            "Its card requires extensions that its entry does not name, so it may refuse each \
                  message."
                .to_owned(),
        cure:
            "Write them into `extensions: [URI, …]`, if messages need nothing else for them than \
               to be named."
                .to_owned(),
        quote: Some(format!("They are: {}.", visible::first(missing))),
    }
}

/// What the operator is told where the agent does not give its extended card; `error` may repeat
/// the agent's words.
pub(super) fn no_extended_card(error: &str, offers_one: bool) -> Remark {
    let cure = if offers_one {
        "See that the entry's credential may read it, or leave `extended_card` out."
    } else {
        "Its public card offers none: leave `extended_card` out, or ask the agent's operator."
    };
    Remark {
        message: "It did not give its extended card, and its last known card is offered."
            .to_owned(),
        cure: cure.to_owned(),
        quote: Some(format!("It answers: {error}.")),
    }
}
