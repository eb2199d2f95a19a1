//! How large a tool may be. A tool that is larger is left out before any code has parsed it; the
//! other tools stay.
//!
//! Must not: read a schema: parsing a hostile one is the danger that these limits prevent.

use super::Members;
use super::json::outside_strings;

/// The most tools of one server.
pub const MAX_TOOLS: usize = 2_000;
/// The largest schema, in bytes.
pub const MAX_SCHEMA: usize = 128 * 1024;
/// How deep a tool may be nested, in levels of JSON: a schema within a schema takes two.
pub const MAX_DEPTH: usize = 64;
/// The most objects of one schema. Each subschema is one, and so is what holds them by name.
const MAX_OBJECTS: usize = 2_000;
/// The longest name, in bytes.
const MAX_NAME: usize = 1024;
/// The longest title or description, and the largest annotations, in bytes.
const MAX_TEXT: usize = 8 * 1024;

/// The shape of JSON text.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// How deep arrays and objects are nested.
    pub depth: usize,
    pub objects: usize,
    /// How many commas, `{` and `[` there are; there is at most one value more.
    pub values: usize,
}

impl Shape {
    /// The shape of JSON text, in one pass.
    pub fn measure(json: &str) -> Self {
        let mut shape = Self { depth: 0, objects: 0, values: 0 };
        let mut depth = 0_usize;
        for (_, byte) in outside_strings(json) {
            match byte {
                b',' => shape.values += 1,
                b'{' | b'[' => {
                    shape.values += 1;
                    shape.objects += usize::from(byte == b'{');
                    depth += 1;
                    shape.depth = shape.depth.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        shape
    }
}

/// Checks that a whole `Tool` object is small enough. The error says what is not, in words that
/// follow the tool's name.
pub fn check(tool: &str) -> Result<(), String> {
    if Shape::measure(tool).depth > MAX_DEPTH {
        return Err(format!("is nested over {MAX_DEPTH} deep"));
    }
    let members = Members::read(tool).map_err(|error| format!("cannot be read: {error}"))?;
    // Readers differ in which of two they take, and in what the case of a key means.
    for (key, value) in &members.0 {
        let value = value.get();
        let (article, len, most, most_objects) = match key.to_ascii_lowercase().as_str() {
            "title" | "description" => {
                let text = serde_json::from_str::<String>(value);
                ("a ", text.map_or(value.len(), |text| text.len()), MAX_TEXT, usize::MAX)
            }
            "name" => ("a ", value.len(), MAX_NAME, usize::MAX),
            "annotations" => ("", value.len(), MAX_TEXT, usize::MAX),
            "inputschema" | "outputschema" => ("an ", value.len(), MAX_SCHEMA, MAX_OBJECTS),
            _ => continue,
        };
        if len > most {
            return Err(format!("has {article}{key} of {len} bytes, over {most}"));
        }
        let objects = Shape::measure(value).objects;
        if objects > most_objects {
            return Err(format!("has {article}{key} of {objects} objects, over {most_objects}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! What is too large, and by how much.

    use super::*;

    #[test]
    fn a_shape_is_that_of_the_json_and_not_of_its_texts() {
        let shape = Shape::measure(r#"{"a":[{}],"b":"[[[{\"[","c":[]}"#);
        assert_eq!(shape, Shape { depth: 3, objects: 2, values: 6 });
    }

    #[track_caller]
    fn too_large(member: &str, why: &str) {
        let error = check(&format!(r#"{{"name":"t",{member}}}"#)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn each_limit_is_named() {
        let text = |len: usize| format!("\"{}\"", "é".repeat(len / 2));
        too_large(&format!("\"description\":{}", text(MAX_TEXT + 2)), "description of 8194 bytes");
        too_large(&format!("\"Title\":{}", text(MAX_TEXT + 2)), "Title of 8194 bytes");
        too_large(&format!("\"Name\":{}", text(MAX_NAME)), "Name of 1026 bytes");
        too_large(&format!("\"annotations\":{{\"a\":{}}}", text(MAX_TEXT)), "annotations of");
        too_large(&format!("\"inputSchema\":{{\"a\":{}}}", text(MAX_SCHEMA)), "inputSchema of");
        too_large(
            &format!("\"outputSchema\":[{}{{}}]", "{},".repeat(MAX_OBJECTS)),
            "an outputSchema of 2001 objects",
        );
        too_large(
            &format!("\"_meta\":{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH)),
            "nested over 64 deep",
        );
        let fits = format!(
            r#"{{"name":"t","description":{},"_meta":{}{},"inputSchema":[{}1]}}"#,
            text(MAX_TEXT),
            "[".repeat(MAX_DEPTH - 1),
            "]".repeat(MAX_DEPTH - 1),
            "{},".repeat(MAX_OBJECTS),
        );
        assert_eq!(check(&fits), Ok(()));
    }
}
