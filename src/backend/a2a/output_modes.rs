//! The media types in which an agent can reply, as its card names them. The bridge takes all of
//! them. A request that names fewer is refused by some agents, and others leave out data and files.
//!
//! Must not: judge a type, or keep more of them than a request should carry.

use crate::model::{Members, elements};

/// The most types that a request names, and the longest one, in bytes.
const MAX_MODES: usize = 64;
const MAX_MODE: usize = 200;

/// The types of the card and of its skills, each once; empty if the card names none.
pub(super) fn of_card(card: &str) -> Vec<String> {
    let Ok(card) = Members::read(card) else { return Vec::new() };
    let mut modes = Vec::new();
    add(&mut modes, &card, "defaultOutputModes");
    for skill in card.objects("skills") {
        add(&mut modes, &skill, "outputModes");
    }
    modes
}

fn add(modes: &mut Vec<String>, members: &Members<'_>, key: &str) {
    let Some(list) = members.get(key).and_then(|list| elements(list.get()).ok()) else { return };
    for mode in list {
        let Ok(mode) = serde_json::from_str::<String>(mode.get()) else { continue };
        if modes.len() < MAX_MODES && mode.len() <= MAX_MODE && !modes.contains(&mode) {
            modes.push(mode);
        }
    }
}

#[cfg(test)]
mod tests {
    //! What a card says, and how much of it.

    use super::*;

    #[test]
    fn card_and_its_skills_name_the_types() {
        let card = r#"{"defaultOutputModes":["text","a/b",7],"skills":[{"outputModes":["a/b","c/d"]},{}]}"#;
        assert_eq!(of_card(card), ["text", "a/b", "c/d"]);
        assert!(of_card("{}").is_empty());
        assert!(of_card("[]").is_empty());
        let many: Vec<String> = (0..1000).map(|number| format!("\"a/{number}\"")).collect();
        let card = format!("{{\"defaultOutputModes\":[{}]}}", many.join(","));
        assert_eq!(of_card(&card).len(), MAX_MODES);
    }
}
