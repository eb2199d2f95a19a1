//! JSON with comments and trailing commas, as editors keep it, made into JSON.
//!
//! Must not: look into strings, or judge what it does not know; the JSON reader does.

/// `text` without comments and without commas before a closing bracket. All other characters keep
/// their positions, so that an error names the right line and column.
pub(super) fn to_json(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out: Vec<char> = Vec::with_capacity(text.len());
    // The position of the last comma, if only white space has followed.
    let mut comma = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => {
                comma = None;
                out.push(c);
                let mut escaped = false;
                for c in chars.by_ref() {
                    out.push(c);
                    match c {
                        '"' if !escaped => break,
                        _ => escaped = c == '\\' && !escaped,
                    }
                }
            }
            ('/', Some('/')) => {
                out.push(' ');
                while let Some(c) = chars.next_if(|c| *c != '\n') {
                    out.push(blank(c));
                }
            }
            ('/', Some('*')) => {
                out.push(' ');
                out.extend(chars.next().map(blank));
                let mut star = false;
                for c in chars.by_ref() {
                    out.push(blank(c));
                    if star && c == '/' {
                        break;
                    }
                    star = c == '*';
                }
            }
            ('}' | ']', _) => {
                if let Some(at) = comma.take() {
                    out[at] = ' ';
                }
                out.push(c);
            }
            _ => {
                if c == ',' {
                    comma = Some(out.len());
                } else if !c.is_whitespace() {
                    comma = None;
                }
                out.push(c);
            }
        }
    }
    out.into_iter().collect()
}

fn blank(c: char) -> char {
    if c == '\n' { c } else { ' ' }
}
