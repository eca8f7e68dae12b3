//! nydus 2, by nydus-builder.

use crate::image::{BYTES, Image, USED};

#[test]
fn nydus_2_takes_every_file_that_json_can_name() {
    let image = Image::new();
    let list = image.export("nydus2", &[]);
    // It skips paths that are not absolute.
    let files = nydus_builder::generate_prefetch_file_info(&list).unwrap();
    let utf8: Vec<&str> = USED
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok())
        .collect();
    assert_eq!(files.len(), utf8.len());
    // What it has read it tells nobody; so these are the list's.
    let text = std::fs::read_to_string(list).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (file, name) in read["files"].as_array().unwrap().iter().zip(utf8) {
        assert_eq!(file["path"], format!("/{name}"));
        let last = [70 * 4096, 2 * 4096];
        assert_eq!(
            file["ranges"],
            serde_json::json!([[0, 4096], [40_960, 81_920], last])
        );
        assert!(last[0] + last[1] <= BYTES);
    }
}
