//! CRC-32C (Castagnoli), which nydus and overlaybd check their files by.

/// RFC 3720, appendix B.4: polynomial 0x1edc6f41, here with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ POLYNOMIAL
            } else {
                sum >> 1
            };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// The checksum of what `sum` is of, which is 0 for nothing, with these bytes behind it.
pub(super) fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)];
    !bytes.iter().fold(!sum, step)
}

#[test]
fn the_sums_are_those_of_the_standard() {
    // RFC 3720, appendix B.4.
    assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(crc32c(0, &ascending), 0x46dd_794e);
    assert_eq!(crc32c(crc32c(0, &ascending[..7]), &ascending[7..]), 0x46dd_794e);
}
