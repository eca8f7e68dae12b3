//! Text from traces, made harmless: paths and names are anybody's.

use headstart_model::human::printable;

/// Text without what moves a cursor, reverses the direction of writing or may not stand in XML, of at most
/// `most` characters: of a longer one the middle is left out, because both ends of a path say most.
pub fn clean(text: &str, most: usize) -> String {
    // What is cut away anyway need not be looked at: a name may be as long as a section of a file.
    let ends = shortened(text, most.saturating_mul(2).max(64));
    let legal: String = printable(&ends)
        .chars()
        .map(|c| match c {
            '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            // Line ends to a reader of JavaScript or XML 1.1, and nothing to see.
            '\u{2028}' | '\u{2029}' | '\u{feff}' => '\u{fffd}',
            c => c,
        })
        .collect();
    shortened(&legal, most)
}

/// Both ends of a text that is longer than `most` characters.
pub fn shortened(text: &str, most: usize) -> String {
    // No character has more than four bytes.
    if text.len() <= most || text.chars().count() <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (head, tail) = (kept / 3, kept - kept / 3);
    let head: String = text.chars().take(head).collect();
    let tail: Vec<char> = text.chars().rev().take(tail).collect();
    head + "…" + &tail.into_iter().rev().collect::<String>()
}

/// The last component of a path.
pub fn last_component(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// Text for the content or an attribute of an XML element.
pub fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// JSON for a script element: nothing in it ends the element or begins a comment of HTML.
pub fn script(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_keeps_both_ends() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefghij", 7), "ab…ghij");
        assert_eq!(shortened("ääääää", 6), "ääääää");
        assert_eq!(clean(&"x/".repeat(100_000), 20).chars().count(), 20);
    }

    #[test]
    fn no_character_that_xml_forbids_is_left() {
        let characters: String = (0..0x2_ffff).filter_map(char::from_u32).collect();
        let cleaned = clean(&characters, usize::MAX / 2);
        for c in cleaned.chars() {
            let legal = c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}' | '\u{7f}'..='\u{9f}');
            assert!(legal, "{c:?}");
        }
    }

    #[test]
    fn markup_becomes_text() {
        assert_eq!(xml("<a b='\"&'>"), "&lt;a b=&#39;&quot;&amp;&#39;&gt;");
        let json = script("[\"</script><!--\u{2028}&\"]");
        assert_eq!(json, "[\"\\u003c/script\\u003e\\u003c!--\\u2028\\u0026\"]");
        let read: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, ["</script><!--\u{2028}&"]);
    }

    #[test]
    fn a_path_is_named_by_its_last_component() {
        assert_eq!(last_component("/usr/bin/env"), "env");
        assert_eq!(last_component("/"), "/");
        assert_eq!(last_component(""), "");
    }
}
