//! What of a text is nobody else's business: paths below the directories of people.

use serde_json::Value;

/// What stands for a path below a home directory, and all behind it.
const LEFT_OUT: &str = "[left out: below a home directory]";

/// The directories of people: what they hold is nobody else's.
pub fn homes() -> Vec<String> {
    let mut homes: Vec<String> = ["/home/", "/root/", "/var/home/", "/run/user/"]
        .map(String::from)
        .to_vec();
    let own = std::env::var("HOME").ok();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_people = passwd.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let uid: u32 = fields.get(2)?.parse().ok()?;
        // Below 1000 are those of services (Debian policy, 9.2.2).
        (uid >= 1000).then(|| fields.get(5).map(|home| (*home).to_string()))?
    });
    for home in of_people.chain(own) {
        let home = home.trim_end_matches('/');
        // A home that is the root, or none, would leave out everything.
        if home.len() > 1 && home.starts_with('/') && home != "/nonexistent" {
            homes.push(format!("{home}/"));
        }
    }
    homes
}

/// Cuts every text where a path below one of these begins, the names of objects' fields, too.
pub fn leave_out(value: &mut Value, homes: &[String]) {
    match value {
        Value::String(text) => {
            if let Some(at) = homes.iter().filter_map(|home| text.find(home)).min() {
                text.truncate(at);
                text.push_str(LEFT_OUT);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| leave_out(value, homes)),
        Value::Object(fields) => fields.values_mut().for_each(|value| leave_out(value, homes)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_below_a_home_directory_is_left_out_to_the_end_of_the_text() {
        let mut report = json!({
            "key": "/usr/bin/python3 /home/anna/my secret.py",
            "list": ["/usr/bin/x", "cannot read /srv/people/bo/a: no permission"],
            "own": "/root/x", "number": 7,
        });
        leave_out(
            &mut report,
            &["/home/".into(), "/root/".into(), "/srv/people/bo/".into()],
        );
        let expected = json!({
            "key": format!("/usr/bin/python3 {LEFT_OUT}"),
            "list": ["/usr/bin/x", format!("cannot read {LEFT_OUT}")],
            "own": LEFT_OUT, "number": 7,
        });
        assert_eq!(report, expected);
    }
}
