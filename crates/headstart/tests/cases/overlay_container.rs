//! What is recorded inside a container on an overlay is learned by the overlay's own paths.

use crate::common::{Case, can_record, is_root};
use serde_json::Value;

/// Builds a root of three layers, none of which can be seen from inside, and runs the script in it as a
/// container does.
const CONTAINER: &str = r#"
mkdir -p up work m low from/opt && cp "$H" up/hs && cp "$H-inspect" up && head -c 3M /dev/urandom >up/top && head -c 2M /dev/urandom >from/opt/below || exit 1
truncate -s 16M image && mkfs.ext4 -qF -d from image && mount -o loop image low || exit 1
sync -f up/top
mount -t overlay o -o lowerdir=$PWD/low:/,upperdir=$PWD/up,workdir=$PWD/work m && cd m && mkdir -p old || exit 1
for d in dev sys; do mount --rbind /$d $d || exit 1; done
pivot_root . old && cd / && mount -t proc proc /proc && umount -l /old || exit 1
export HEADSTART_STATE=/st
for i in 1 2; do
    for file in /top /opt/below; do dd if=$file iflag=nocache count=0 status=none; done
    /hs run --wait --control-every 0 --name k -- perl -MPOSIX -e "for (qw(/top /opt/below)) { open F, q(<), \$_; 1 while sysread F, \$b, 65536 }" || exit 1
done
echo "["
/hs status k --json
for file in /top /opt/below; do echo ","; /hs explain --name k --json $file; done
echo "]"
"#;

#[test]
fn in_a_container_whose_layers_it_does_not_see_a_start_is_learned_and_read_ahead() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = format!(
        "cd {} && export H && exec unshare --mount --propagation private --pid --fork sh -c '{CONTAINER}'",
        dir.path().display()
    );
    let ran = case.script(&script);
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    let told: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    let status = &told[0];
    for (explained, least) in [(&told[1][0], 3 << 20), (&told[2][0], 2 << 20)] {
        let requests = explained["requests"].as_array().unwrap();
        let bytes: u64 = requests
            .iter()
            .map(|used| used[1]["length"].as_u64().unwrap())
            .sum();
        assert!(bytes >= least, "{explained}");
    }
    assert!(
        status["plan"]["data_bytes"].as_u64().unwrap() > 6 << 20,
        "{status}"
    );
    let last = status["outcomes"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["mode"], &last["used"]["unreachable_pages"]),
        (&"replay".into(), &0.into()),
        "{last}"
    );
    let used: u64 = last["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["used_pages"].as_u64().unwrap())
        .sum();
    assert!(
        used >= (5 << 20) / 4096,
        "what the replay asked for is what was used: {last}"
    );
}
