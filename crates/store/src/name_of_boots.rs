/// The name of the directory of the key `boot` in the state directory: a hash and the key (`directory_name`).
macro_rules! name_of_boots {
    () => {
        "4509beb0ab401d71-boot"
    };
}
