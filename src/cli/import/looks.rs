//! Which names and which texts a secret may hide behind. A text that cannot be told from a secret
//! counts as one: hidden without need, it costs its owner one `export`; shown, it is lost.
//!
//! Must not: know where in a file a text stands.

use crate::config::looks_secret;

/// How much the name of a value says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// Its value is a secret.
    Secret,
    /// Its value is a secret, or a word that says how to log in.
    Login,
    /// The value itself has to tell.
    Other,
}

/// Words in the names of secrets, apart from those that [`looks_secret`] has.
const SECRET: &str = "pass passcode passwds pw pwds tokens keys pats cred creds credentials jwt otp \
                      pin mnemonic seed salt hmac secrets signature apikeys webhook";
/// Words in names of what belongs to a login.
const LOGIN: &str = "auth authn authz session sessionid sid cookie dsn sig private conn connection \
                     connectionstring";
/// Last words of names whose values only describe a secret.
const DESCRIPTION: &str = "algorithm count enabled expiry host issuer length level limit method mode \
                           name port provider region retries scheme size timeout ttl type url uri \
                           file path dir directory endpoint version";

/// What a key, a header, a variable or an option of this name has.
pub(super) fn naming(name: &str) -> Naming {
    let words = name_words(name);
    if looks_secret(name) || looks_secret(&words.join("_")) {
        return Naming::Secret;
    }
    if words.last().is_some_and(|last| among(DESCRIPTION, last)) {
        return Naming::Other;
    }
    // `MAX_TOKENS` is a number of tokens.
    if words.iter().any(|word| matches!(word.as_str(), "max" | "min")) {
        return Naming::Other;
    }
    if words.iter().any(|word| among(SECRET, word) || ends_as_secret(word)) {
        return Naming::Secret;
    }
    if words.iter().any(|word| among(LOGIN, word)) { Naming::Login } else { Naming::Other }
}

/// Whether `word` is one such as `dbpass`, in which nothing parts the last word from the first.
fn ends_as_secret(word: &str) -> bool {
    !matches!(word, "bypass" | "compass")
        && ["pass", "pwd", "cred", "creds"].iter().any(|end| word.ends_with(end))
}

fn among(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// The words of `dbPassword`, `DB_PASSWORD` and `db-password`, in small letters.
pub(super) fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (was_lower && c.is_uppercase());
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a person could have given this name, whose words may be written together. Without a
/// digit, only a value is taken for a secret.
pub(super) fn is_everyday_name(name: &str) -> bool {
    !name.contains(is_digit) || is_everyday(&name_words(name).join(" "))
}

/// Whether the value of something that [`Naming::Login`] names is a word and no secret.
pub(super) fn says_how_to_log_in(value: &str) -> bool {
    const WORDS: &str = "none no off yes on true false auto default disabled enabled basic bearer \
                         oauth oauth2 oidc saml jwt apikey api_key api-key header query local";
    let value = value.trim().to_ascii_lowercase();
    let short_number = (1..=6).contains(&value.len()) && value.chars().all(is_digit);
    short_number || among(WORDS, &value)
}

/// What the credentials of well-known services begin with.
const PREFIXES: &str = "sk- sk_ pk_ rk_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xoxa- xoxb- xoxp- \
                        xoxe- xapp- ntn_ secret_ eyJ AKIA ASIA AIza ya29. hf_ npm_ pypi- lin_api_ \
                        figd_ shpat_ tvly- fc- gsk_ r8_ key-";
/// A shorter text is no credential, unless its name says so.
const SHORTEST_SECRET: usize = 8;
/// More parts with letters and digits than names of models and images have.
const MAX_MIXED: usize = 3;

/// Whether a person recognizes `text`: words, numbers, versions, paths and names of hosts. Private
/// characters stand for references, and say nothing.
pub(super) fn is_everyday(text: &str) -> bool {
    let text = text.trim();
    if text.chars().filter(|c| c.is_alphanumeric()).count() < SHORTEST_SECRET {
        return true;
    }
    if text.len() >= 12 && PREFIXES.split_whitespace().any(|prefix| text.starts_with(prefix)) {
        return false;
    }
    let parts: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    parts.iter().filter(|part| mixes_digits(part)).count() <= MAX_MIXED
        && parts.into_iter().all(is_word)
}

fn mixes_digits(part: &str) -> bool {
    part.contains(is_digit) && !part.chars().all(is_digit)
}

pub(super) fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Whether letters and digits without a separator are a word, a number or a version.
fn is_word(part: &str) -> bool {
    let chars: Vec<char> = part.chars().collect();
    let digits = chars.iter().filter(|c| is_digit(**c)).count();
    let letters = chars.len() - digits;
    if digits == 0 {
        return is_word_of_letters(&chars);
    }
    // Longer numbers are accounts and tokens.
    if letters == 0 {
        return digits <= 10;
    }
    let changes = chars.windows(2).filter(|two| is_digit(two[0]) != is_digit(two[1])).count();
    let begins_with_letter = chars.first().is_some_and(|c| !is_digit(*c));
    let ends_with_letter = chars.last().is_some_and(|c| !is_digit(*c));
    // `v20251128`.
    if letters == 1 && begins_with_letter && changes == 1 {
        return digits <= 8;
    }
    // `k8s`, `i18n`, `gpt4o`: only a short word has digits inside.
    if begins_with_letter && ends_with_letter && chars.len() > 6 {
        return false;
    }
    let only_letters: Vec<char> = chars.iter().copied().filter(|c| !is_digit(*c)).collect();
    changes <= 2 && digits <= 4 && is_word_of_letters(&only_letters)
}

/// Whether a person could pronounce the letters, and writes them with capitals so.
fn is_word_of_letters(letters: &[char]) -> bool {
    let count = letters.len();
    let humps =
        1 + letters.windows(2).filter(|two| two[0].is_lowercase() && two[1].is_uppercase()).count();
    let vowels = letters.iter().filter(|c| is_vowel(**c)).count();
    let longest_without = letters.split(|c| is_vowel(*c)).map(<[char]>::len).max().unwrap_or(0);
    let enough_vowels = vowels * 4 >= count;
    match count {
        0..=7 => humps <= 3,
        8..=11 => humps <= 3 && longest_without <= 6,
        12..=20 => humps * 4 <= count && longest_without <= 4 && enough_vowels,
        21..=32 => humps * 4 <= count && longest_without <= 3 && enough_vowels,
        _ => false,
    }
}

/// Letters of other scripts count as vowels, since a word in them may have none that is seen here.
fn is_vowel(c: char) -> bool {
    !c.is_ascii() || matches!(c.to_ascii_lowercase(), 'a' | 'e' | 'i' | 'o' | 'u' | 'y')
}
