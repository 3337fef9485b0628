package io.snowmint.client;

import java.io.ByteArrayOutputStream;
import java.security.InvalidKeyException;
import java.util.Arrays;

/** Wraps keys as OpenSSL writes them into PKCS#8, the only form that the JDK reads. */
final class Der {
    private static final int INTEGER = 0x02;
    private static final int OCTETS = 0x04;
    private static final int SEQUENCE = 0x30;

    /** The tag of the curve in a SEC 1 key. */
    private static final int CURVE = 0xA0;

    private static final byte[] VERSION = {INTEGER, 1, 0};

    /** The algorithms of RSA and EC keys, as object identifiers. */
    private static final byte[] RSA = {
        0x06, 0x09, 0x2A, (byte) 0x86, 0x48, (byte) 0x86, (byte) 0xF7, 0x0D, 0x01, 0x01, 0x01
    };

    private static final byte[] EC = {
        0x06, 0x07, 0x2A, (byte) 0x86, 0x48, (byte) 0xCE, 0x3D, 0x02, 0x01
    };

    private static final byte[] NULL = {0x05, 0};

    private Der() {}

    static byte[] pkcs8OfPkcs1(byte[] key) {
        return pkcs8(RSA, NULL, key);
    }

    static byte[] pkcs8OfSec1(byte[] key) throws InvalidKeyException {
        return pkcs8(EC, curve(key), key);
    }

    private static byte[] pkcs8(byte[] algorithm, byte[] parameters, byte[] key) {
        return block(SEQUENCE, VERSION, block(SEQUENCE, algorithm, parameters), block(OCTETS, key));
    }

    /** Finds the curve: the element with its tag, behind the version and the secret number. */
    private static byte[] curve(byte[] key) throws InvalidKeyException {
        int[] all = element(key, 0);
        for (int at = all[0]; at < all[1]; ) {
            int[] content = element(key, at);
            if ((key[at] & 0xFF) == CURVE) {
                return Arrays.copyOfRange(key, content[0], content[1]);
            }
            at = content[1];
        }
        throw new InvalidKeyException("the key does not name its curve");
    }

    /** Returns where the content of an element begins and ends. */
    private static int[] element(byte[] der, int at) throws InvalidKeyException {
        if (at + 2 > der.length) {
            throw new InvalidKeyException("the key is cut off");
        }
        int length = der[at + 1] & 0xFF;
        int begin = at + 2;
        if (length >= 0x80) {
            int bytes = length - 0x80;
            length = 0;
            for (int i = 0; i < bytes && begin < der.length; i++) {
                length = length << 8 | der[begin++] & 0xFF;
            }
        }
        if (length < 0 || length > der.length - begin) {
            throw new InvalidKeyException("the key is cut off");
        }
        return new int[] {begin, begin + length};
    }

    private static byte[] block(int tag, byte[]... parts) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            content.writeBytes(part);
        }
        ByteArrayOutputStream block = new ByteArrayOutputStream();
        block.write(tag);
        int length = content.size();
        if (length >= 0x100) {
            block.write(0x82);
            block.write(length >> 8);
        } else if (length >= 0x80) {
            block.write(0x81);
        }
        block.write(length);
        block.writeBytes(content.toByteArray());
        return block.toByteArray();
    }
}
