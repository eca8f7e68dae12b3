//! Programs that take places in an image rather than names.

use super::{Consumer, Form, PLAIN, PlacesOf};

pub(super) const ALL: &[Consumer] = &[
    Consumer {
        name: "nydus3",
        about: "nydus optimize --trace-file LIST (nydus 3, from 3.0.0-beta.2 on)",
        form: Form::Places {
            images: "the bootstrap, then the .blob.meta of each blob, in the order of nydus check",
            of: PlacesOf::Nydus,
        },
        ..PLAIN
    },
    Consumer {
        name: "desync",
        about: "desync mount-index --cor-state-init LIST",
        form: Form::Places {
            images: "the index (.caibx) of the disk image that is mounted at --tree",
            of: PlacesOf::Desync,
        },
        ..PLAIN
    },
    Consumer {
        name: "overlaybd-trace",
        about: "the acceleration layer of overlaybd: the trace itself",
        form: Form::Places {
            images: "the layers of the image that is mounted at --tree, uncompressed, in the order of its lowers",
            of: PlacesOf::Overlaybd,
        },
        ..PLAIN
    },
];
