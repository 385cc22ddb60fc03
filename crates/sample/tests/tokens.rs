//! JSON Web Tokens, encrypted and signed: tokens open with the right key and nothing else. Keys and tokens were made for these
//! tests with Python's `cryptography`.

mod common;

use std::sync::{Mutex, MutexGuard};

use common::World;
use sample::convert::jwe;

#[rustfmt::skip]
const SECRET_DIR: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
#[rustfmt::skip]
const DIR: &str = "eyJhbGciOiAiZGlyIiwgImVuYyI6ICJBMjU2R0NNIn0..qR_eSibn3-CYMWGr.B_K73FgPNA.KM3BxZAHEMli_IqKsoOb1Q";
#[rustfmt::skip]
const SECRET_192: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
#[rustfmt::skip]
const KW192: &str = "eyJhbGciOiAiQTE5MktXIiwgImVuYyI6ICJBMTkyQ0JDLUhTMzg0In0.12f-9HzrUAo4lR7-CxZje3xxBNGm5CfHb_FOi2LVqQIoySnmqhcpn23TuhB2tgBL7aAf0JJDabg.xpmYRbjNZBwSlQ-_CJiPjw.YIs2IbG6eeS8ILQbRKWwdQ.aq_JmloUlBeqLvL8kLXWyPzP-kx7Ywwz";
#[rustfmt::skip]
const GCMKW: &str = "eyJhbGciOiAiQTI1NkdDTUtXIiwgImVuYyI6ICJBMTI4R0NNIiwgIml2IjogIjB5Y1FGNWxkUkkzdUN1R1YiLCAidGFnIjogImgyWmNwdHhzNjJYZ3lIeFhUUThBNHcifQ.UVdUgUXP1CaI72Snly5rNQ.P3Rtz3BUyrigssGk.6ETOKabGZA.sVyImHSKB1n9_I7cGaUrOA";
#[rustfmt::skip]
const OAEP256: &str = "eyJhbGciOiAiUlNBLU9BRVAtMjU2IiwgImVuYyI6ICJBMjU2Q0JDLUhTNTEyIn0.wsHFjspd4gF3qIpcojpdto0_I1CSYOFRnoSZNSx4NRYCFkK0MFp6ciWdS-Q1W_WOBVgGWoDxLqkno8whgp0oZGRk83NbD-tvYGDAK2BdNf89gNF81xxLAqljUUmc0xEzvXomx-eorMFui-sJ0iWFx2BhBc-VYftjAMX7iTJiDhv4Fc68A8P19mahrmp4h09SjPdqncL9TDoTRC1q0vPTeSue3S65lpIaKgi1eX4e1YDUTF8Jzi7WmO-yiJ2jKd9CEEV9ftCmtAH1llBZm0gfgW_VeqGJ-p9ZXl_-XPsE6of32Gm-Mu5LO14RY0J5735NWiNbZRkR6Z30KCaJUfGudw.lcq9OB00qNCDM-1IExb-rQ.4MF0Cln_tMY3IzidkRAZnQ.RIB5jiQc7sEUqRNV6AArlCJCUaAaVm0flDW2zyIS9Os";
#[rustfmt::skip]
const OAEP: &str = "eyJhbGciOiAiUlNBLU9BRVAiLCAiZW5jIjogIkEyNTZDQkMtSFM1MTIifQ.NCsLKQXr6TjbgZLgE53_cs8NsjsOrYdZMKFfYJNcO80n5Lb2r7r2idvl2emTDex4FqeuDa4mRytWDhpdRuh_RhPbKOQjWLodcuLtWOs0P9hZ3r7VRtLxbXF1bGBdDpTMmJM7lUeEKBVL1tuAFfUiB7HU_yQuKzlV2AEZ3_62qCRtKaXYS0ELQ_WujxLF1uI1yvrBU6R26YUuRYacUn47Fka4-O2YybAXVzlWD6z7rF94mkYMbLXuAMiuq0qF1KHLIhLaIBlrxsAexqdaf-b_ZrJLr0TXujdzdyi1hqR5qExh3HCHjPoupdgpNIiriFd--aNxrMh6O4gtRjHcK8K7Zw.MGo2vZMaVZTk8hbDVW5ADg.12IvdE-Av5XDpjJh39TnqA.Q6DChwnd69goEWEAcCqnZjfUKlRjz8E-K0VcwsDnUPs";
#[rustfmt::skip]
const RSA15: &str = "eyJhbGciOiAiUlNBMV81IiwgImVuYyI6ICJBMjU2Q0JDLUhTNTEyIn0.sCwE367Fve-dd0-8-tDhXFx5YNTY0UjP_-FSrDfFzEBQt5H1p9blntOsWSNChsvWK09O0YEyyx3_KHNWhHoC1YjGy4-i-K-PXuEuzPsvTe5rYQA9GBo7Z04AXFlGAatzBZwn4XaSlZ_NdZW-GoyTT6L9UL0gqXugOJltWguAZYiyVpFVePDLeR0eTjJmH0pzFN8zBaB-z2arpjw9g8qMkZtLHM4cnnSmk-wcTF9s7wOKdAe2owdYEHffc4wAGXyVOzr8s5yiDXLuXiZTSYXHynuIw1D0mVG_FBoBiZwdziYpiPIDo119nk6WdmZgRWaH41qsELpmVea1UeXXlTuAGg.PIT6Bw15fFLv-Ug49_S0Dg.5ZMxQyu4AgQXWP5146Hkzw.Zco2vxaxyoho78in3R_jMwlj6YP_Z3_oWl8C7kyPgqE";
#[rustfmt::skip]
const RSA_JWK: &str = r#"{"kty":"RSA","n":"xTM5QcA_ers5BcVMdVk0FuBLpofco2jDBcoVcP2uio-yEfUsGnfsiVFUx6gZ0Ib6oxM4inLCU957_h3jZ1CUGktvpz7cIRGvVDQSRxtIDiHzGJ47zXS_0B-iizlFdE6oFIywc2IoPmW2VCueWZgr0ELo-M0ljYeOQ0jbNF17FZD-KC3-U5Qeo4PYY1fCHP2vEZ9PzNB4MI6d4FGYten8p63o1Z55zyZ3k87ly9dDnBhem64vcRCuUwW2FLBN-sugzgc-E3L6_pIwDUsHCARVT3RgEaWji7JWSfXhs4KrsHnPyiEqT-xtnlQxCuX7AYkrVRu6--bsSxUJB_U06g-KIw","e":"AQAB","d":"Hnn-qNc92El0FBy8Zsxs_PYYKvoHUuffcBcdvjMulPKFSjoyYTrUfxpnOF4V80DRHn_bdqYqu0yArDLRUMfGw9ORw263FZNGngRYKM4iEjEUAWN_CY84D8G73LlyrvlzB44AvSxX3ODaT2LYW69lYg_dMop9-cQP6_0oB41E9v2GgpIHkCjmHtGUueD8SFwA_prOzaGLqnoBB6XinLpREiDMR8Librxcn39BpSthpzQRTACcqGIb_YXBTM9FhxG0xBv14dFQ3b7KTbKbWpGH5_evn8GhwDeTzHEXC0dUxVEnH5IBb0Vr1kP7gvmab5bjk8tvmvOFxSsgXwlw6qGEnQ","p":"7cFUfnvS-SGHprN5I3L0N1IAMppDYiLR7iZep-oufYrUYQ6HT5DsMEFqL0It5klldGMhOoYTygO07QOrm7cxIOz9PJKfQB9cn_USOY9u4hzRENW1ojjY8phwFHRr9O4V4KavKnPj368IDVBSthyaVr_g2cx63kCcSQ2Buv0V0Rc","q":"1FUxoXQ7-hrOftC414ZUGLYCYoDu8buM50pCjQtaF0iURBbUYgw2lFBPrjLkHwrzGfBQ_Lpjtu__HPDNo256HQ7Bl7TwhsP4or9-2gDLefV-rvPsBi4nZqZxOmNcn7ecx5O9ZTGHzL0rKTosnbgZYIO2xMQgJdUrOtZGPB0DPtU","dp":"jU51UIN5nZY_EGXk3pvI6EQ1V931pJL7YGavpW762KS1m0XOSAzjQ77tRE86Bn-i6-yq6CSeCFfxpVikGvVjHqWb0O939N1u6Kb4gPtttLfZzf6maFcPIghVvOKA81654_5NZ5bfXaeiyn7t2czgMiTyl5__eq699HExpJgc6ls","dq":"RzCtLDnBZjCYrVIjtzc1ePeFQyuBcZD1RBLUz19P_GB8PXv-B0WbAw0OOhScAYB1U2wMaz--8PX0beqat8HxtU5eQBQNVNHdygs0Z7k-f4x8xgHIT6Yn1bXWXsIzquUv7oYtSQFbS5zdHLyBevvfnklq_PvY33ZiQR7Ye40qqmU","qi":"aa2lEtoVq-yj0MgbwZcU-e6wOJDAxaDmLymvqdy_NkhdYwjetGmznXutIep25FuEx-6MHsayEYmJflh22ZRJNRlJuJbC_03ulKT1xYxgVl71mQd84KfZexJ8zxArqZwLvsJifQmToexBRzz94MdIh81MRAlJ6Ld4Ba1MvJwz8C4"}"#;
#[rustfmt::skip]
const EC256: &str = "eyJhbGciOiAiRUNESC1FUyIsICJlbmMiOiAiQTEyOENCQy1IUzI1NiIsICJlcGsiOiB7Imt0eSI6ICJFQyIsICJjcnYiOiAiUC0yNTYiLCAieCI6ICJIYUp5SHVoTjdfN1U0LW9BTFNvS25FeGNHRlJ2bE45QjFyUlNNTVdpTFdnIiwgInkiOiAiMVcwQS1aLTVnM2UtRjc2aXpkM2JGeFRRMDJaOW9ncWpJSnlwR3BkUEZ5MCJ9fQ..h6RiYMLMAHB3wefAnJ8ung.tmf9R9U8INLTekIRRj5lgg.XOaaJm9XIwxiN0GpbTsSwA";
#[rustfmt::skip]
const EC256_JWK: &str = r#"{"kty":"EC","crv":"P-256","x":"RbybuSE5eaWBsQjEAmQM4sXPeKvcjnEDDi9HpGYgXYY","y":"oZOxiB600L0dhZw1rpYJlAKIK8PwO4lSq3vxPJVI1a4","d":"tV8l6K4En1J4UzyYygGZbUQd0SVwZ24FqTF9HUegXjw"}"#;
#[rustfmt::skip]
const EC384: &str = "eyJhbGciOiAiRUNESC1FUytBMTI4S1ciLCAiZW5jIjogIkExMjhHQ00iLCAiZXBrIjogeyJrdHkiOiAiRUMiLCAiY3J2IjogIlAtMzg0IiwgIngiOiAiRXRHem45ckVkSWhHTTYyMm5kd1laOGxjQ21TRHJaWU1LMGxUR2NlbEJrbmxWQTJWVHlfU044NzVZalQzQVo0aCIsICJ5IjogImhJRlN5dWFYY0x4Zm5NUHktX3dXd2lUcVNPT0ZfOUIzQnhYV2hpNEpJMzJRQVVFMWdnSWE1N0ZYZWZSNTA4ekkifX0.w1Av7Zm-9_5dTrOE3wDKiZSXZftjEihO.2vW3gsElhia2Lmsf.1NKDvZOROA.cFfihEHzf82kqo0L-c3pMg";
#[rustfmt::skip]
const EC384_JWK: &str = r#"{"kty":"EC","crv":"P-384","x":"nbcS0W2LOCin3E01qZfVwHTFwFAnW3oBOngs0Ot1NymLeKav2hV4MAJ5A5fZp0C2","y":"cBrgD3_1zAokMhEIYCbdcJx1CG1r-2QwoCPXZYr9zA7L8QPWdQTIWC3DgcARdAkm","d":"Ig4GTdiqHauQLSMM2je5zng6oQRhqlJ2IPJhha4_KS62L5L1ETra1PYolEktbfOt"}"#;
#[rustfmt::skip]
const EC521: &str = "eyJhbGciOiAiRUNESC1FUytBMjU2S1ciLCAiZW5jIjogIkEyNTZHQ00iLCAiZXBrIjogeyJrdHkiOiAiRUMiLCAiY3J2IjogIlAtNTIxIiwgIngiOiAiQWRhb01tdlVJbGMyX2phT1d2Q085dS1tcjRidmxUWnZ6dVdsdTA5OGpHVDNzQUp0aU9JXy1uRGItU05nbXNWd21FTUpaNXJDcFEyYXBHZ2MzcTBzRG9sYyIsICJ5IjogIkFLM3p1YmdmN0Y4bVFSZGw5UUVIYWtrcDJ6cTctdWFYQmFiQ1pSQUNxMVpMN09wS2pWQk1FNG9XSmFTaUZ3TnFRZ3FEVXJSRjV3dXFibzF4XzZGSzZDdzgifX0.wK8sMCUSVzLUyVeU42tqnM73avTUo9Hz_ux0MEfSHZTzfeGIJyHg3g.CwgDsX2AyYUe1qcK.6bJMHFOk9A.tC-xPVI4JTth4i09oxydLg";
#[rustfmt::skip]
const EC521_JWK: &str = r#"{"kty":"EC","crv":"P-521","x":"ACD6N4_VgOc20ZCv8Tj7za9s7d3oVbuj_KmOIsDhkZn0X9zhYGNUbbc5oauht8Xd_Ee-_34Jt1HP6yokUcpjVSDc","y":"AaF_L9NNhr1kvribnq7diO_ohgtewNqUGxwMtraYeP7repBeon1XLYCTRecLaDI6s0YMiZ1feJVtMhIiDmtdMci2","d":"AKmrpbfTxSHVbj6SNACCMAkCth88bJfMNHph7qhdx_4e65XH38ba47bu8JfFcH_n4RS9dqZCnlO3db2VDwj8ce1b"}"#;
#[rustfmt::skip]
const CERT521: &str = "-----BEGIN CERTIFICATE-----\nMIIBlzCB+qADAgECAgEHMAoGCCqGSM49BAMCMBExDzANBgNVBAMMBnRva2VuczAg\nFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowETEPMA0GA1UEAwwGdG9r\nZW5zMIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBJh1gfRBqgnkgh5evh01NNO0P\nGVwG0TfR7ovZRGNqTRnhrt02l3vNUQ7YXJyxCn/qFUo9W8KvrE+5mB3hQUNb8xUA\nuSb6uo3OiXxxHhewWvs3ik+OHC7v5ErkWeyMw3JUOHSK73IraaEfj7FTKDxLVyMC\nptMjwWlVg9mdiDP47kdlnfIwCgYIKoZIzj0EAwIDgYsAMIGHAkIAkdRAu5MuypVQ\nHEWtN/7BFA1qYu1P1Nj8if9mR+EMr3D673/6xOR85dST0UH614vQREh9ywpDHEPJ\nVu6u74/tOJ0CQRFEgr2LgLTxUyUJQALuCr6NG7bwEKQxkMVqbFRf93PZ4xInMDvS\nXJ9QL0Qlqr5uFwqVxvrpzzeHze+rOuCu4Vqo\n-----END CERTIFICATE-----\n";
#[rustfmt::skip]
const ES512: &str = "eyJhbGciOiJFUzUxMiJ9.eyJzdWIiOiJqb2UifQ.AUDf8dulpiaixvgI4-E4HJANWQRyp5wnqphgSzFL9dyxRl2f85fgiskP8gELFm9pI_47IbnXZikx2l5TJFagWVUuAdMqkeSq-ikH59rTX2iXLdZOMuqitFWKPIhgAHEItSSZ9M_J9gdxGNJPd3ZLnE_wYbyjZBQTztmRKX73rQ0E5NWG";
#[rustfmt::skip]
const CERT256: &str = "-----BEGIN CERTIFICATE-----\nMIIBETCBt6ADAgECAgEHMAoGCCqGSM49BAMCMBExDzANBgNVBAMMBnRva2VuczAg\nFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowETEPMA0GA1UEAwwGdG9r\nZW5zMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAER3/Q+sjEzieXQ9UfS6m5ms7h\nmWRor9MFYEAJMk9zQb0qz4x/+xorl6mJ32xpEp31gIoB+XUJ92qw4dgfoCcRWDAK\nBggqhkjOPQQDAgNJADBGAiEApy/8xvfm6zoQ/em2+jR9yPyos0aUUDr2/V35M6Tt\nJtkCIQDXKJR5v3LskDEiQ79xzYUTYyOoqaCFDFKkrA5v+ibxbQ==\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIMq3/Jsd1WSsh5Uq/3OhUlh4Ns6TyH9YwRlZvVcJiDrOoAoGCCqGSM49\nAwEHoUQDQgAER3/Q+sjEzieXQ9UfS6m5ms7hmWRor9MFYEAJMk9zQb0qz4x/+xor\nl6mJ32xpEp31gIoB+XUJ92qw4dgfoCcRWA==\n-----END EC PRIVATE KEY-----\n";
#[rustfmt::skip]
const CERT256_PKCS8: &str = "-----BEGIN CERTIFICATE-----\nMIIBEDCBt6ADAgECAgEHMAoGCCqGSM49BAMCMBExDzANBgNVBAMMBnRva2VuczAg\nFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowETEPMA0GA1UEAwwGdG9r\nZW5zMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAER3/Q+sjEzieXQ9UfS6m5ms7h\nmWRor9MFYEAJMk9zQb0qz4x/+xorl6mJ32xpEp31gIoB+XUJ92qw4dgfoCcRWDAK\nBggqhkjOPQQDAgNIADBFAiAkQ5FboZ1F5Do+G34/RnU5SX8TOcTa4nHRHYgCtjHZ\nagIhAPdNRnu4Z6jLCFFL71DBTGId5e+YU8zSvG2acW/xo0K2\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgyrf8mx3VZKyHlSr/\nc6FSWHg2zpPIf1jBGVm9VwmIOs6hRANCAARHf9D6yMTOJ5dD1R9LqbmazuGZZGiv\n0wVgQAkyT3NBvSrPjH/7GiuXqYnfbGkSnfWAigH5dQn3arDh2B+gJxFY\n-----END PRIVATE KEY-----\n";
#[rustfmt::skip]
const CERT256_TOKEN: &str = "eyJhbGciOiAiRUNESC1FUyIsICJlbmMiOiAiQTI1NkdDTSIsICJlcGsiOiB7Imt0eSI6ICJFQyIsICJjcnYiOiAiUC0yNTYiLCAieCI6ICJvbnIzU2hxMHMzYjR3ZFhyMmRNWXZyN2xxcTY1YTJ4SGhZUkduT3Nmcl9zIiwgInkiOiAiMUdXWWdhLXNhWm1BSXg5WEdIR2tnUjNnYlZpOGw4MUEyZTgxdlhiLWhtMCJ9fQ..D9exCBpxmi9tVMVp.z8Uu-HHaLA.1fNcX97KNIH5KsUH1MN-MA";
#[rustfmt::skip]
const PS256: &str = "eyJhbGciOiJQUzI1NiJ9.eyJzdWIiOiJqb2UifQ.kxnkWiFNJlB-JkwCY6bGOR8y5yiGC8ZlPjZ79CLIQZgBMDlfL3Oh2gBoNG2xbEXwVnM5ipGTjxaJpbvyGGEj7KQOtifhsTlLFmzV8kr68g5vX4Tpqm64Dq1C9ro24pXTFTS9eqtJWAwa8r7nUH5PohhBY7rb-WaDh3Lk9L5v5L4nI76cnowLlDMWx83syENuF9v-RwC6MygI88PpcLYC0ttO3PE5ay-Mg0b5JafWhzHvv4-HkYxwk-48Z7BWdvNrhgXPWRuT-qQpbX7Cd9-ZznZSkX1rOpw0lodBwYbyVacYEJdad-1p5Itvs9E00aFwBGrJ2eOre2l04RHOCslQHA";
#[rustfmt::skip]
const CERTRSA: &str = "-----BEGIN CERTIFICATE-----\nMIICnTCCAYWgAwIBAgIBBzANBgkqhkiG9w0BAQsFADARMQ8wDQYDVQQDDAZ0b2tl\nbnMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBExDzANBgNVBAMM\nBnRva2VuczCCASIwDQYJKoZIhvcNAQEBBQADggEPADCCAQoCggEBAMUzOUHAP3q7\nOQXFTHVZNBbgS6aH3KNowwXKFXD9roqPshH1LBp37IlRVMeoGdCG+qMTOIpywlPe\ne/4d42dQlBpLb6c+3CERr1Q0EkcbSA4h8xieO810v9Afoos5RXROqBSMsHNiKD5l\ntlQrnlmYK9BC6PjNJY2HjkNI2zRdexWQ/igt/lOUHqOD2GNXwhz9rxGfT8zQeDCO\nneBRmLXp/Ket6NWeec8md5PO5cvXQ5wYXpuuL3EQrlMFthSwTfrLoM4HPhNy+v6S\nMA1LBwgEVU90YBGlo4uyVkn14bOCq7B5z8ohKk/sbZ5UMQrl+wGJK1Ubuvvm7EsV\nCQf1NOoPiiMCAwEAATANBgkqhkiG9w0BAQsFAAOCAQEAM6A8ZTmPI5ZvTuOSFX1r\nAyePhqlhE3KlCt6JqQaQ5h46pH5MKSLHkwDFadFmbogDOw7O0eXLHkNcLaPWMrH0\nSOyty3ReSp5JJUZJjQzE1uImHg8kusi8kmXkvCW8xMD5F/fMAA1vmtyPND1DsUCY\nZ5TWtCzWehmpaSPnEoOfzDcuyznckqdBy0FVCDoCBCPIbcjf4oU0pRBmJ+tRp/Yw\nm0EC3f2N5B/8UpKW1sG43IXar8n0h0c9EEG2/RtNQHqJmQtiwgXl7saWxwP/q/oi\nCzvUlBskf7jBYuvCblmtQdWr7zbUGk3WeBbvjugUqOPVcLtNL88Wa3/7XLF/XI81\nDw==\n-----END CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAxTM5QcA/ers5BcVMdVk0FuBLpofco2jDBcoVcP2uio+yEfUs\nGnfsiVFUx6gZ0Ib6oxM4inLCU957/h3jZ1CUGktvpz7cIRGvVDQSRxtIDiHzGJ47\nzXS/0B+iizlFdE6oFIywc2IoPmW2VCueWZgr0ELo+M0ljYeOQ0jbNF17FZD+KC3+\nU5Qeo4PYY1fCHP2vEZ9PzNB4MI6d4FGYten8p63o1Z55zyZ3k87ly9dDnBhem64v\ncRCuUwW2FLBN+sugzgc+E3L6/pIwDUsHCARVT3RgEaWji7JWSfXhs4KrsHnPyiEq\nT+xtnlQxCuX7AYkrVRu6++bsSxUJB/U06g+KIwIDAQABAoIBAB55/qjXPdhJdBQc\nvGbMbPz2GCr6B1Ln33AXHb4zLpTyhUo6MmE61H8aZzheFfNA0R5/23amKrtMgKwy\n0VDHxsPTkcNutxWTRp4EWCjOIhIxFAFjfwmPOA/Bu9y5cq75cweOAL0sV9zg2k9i\n2FuvZWIP3TKKffnED+v9KAeNRPb9hoKSB5Ao5h7RlLng/EhcAP6azs2hi6p6AQel\n4py6URIgzEfC4m68XJ9/QaUrYac0EUwAnKhiG/2FwUzPRYcRtMQb9eHRUN2+yk2y\nm1qRh+f3r5/BocA3k8xxFwtHVMVRJx+SAW9Fa9ZD+4L5mm+W45PLb5rzhcUrIF8J\ncOqhhJ0CgYEA7cFUfnvS+SGHprN5I3L0N1IAMppDYiLR7iZep+oufYrUYQ6HT5Ds\nMEFqL0It5klldGMhOoYTygO07QOrm7cxIOz9PJKfQB9cn/USOY9u4hzRENW1ojjY\n8phwFHRr9O4V4KavKnPj368IDVBSthyaVr/g2cx63kCcSQ2Buv0V0RcCgYEA1FUx\noXQ7+hrOftC414ZUGLYCYoDu8buM50pCjQtaF0iURBbUYgw2lFBPrjLkHwrzGfBQ\n/Lpjtu//HPDNo256HQ7Bl7TwhsP4or9+2gDLefV+rvPsBi4nZqZxOmNcn7ecx5O9\nZTGHzL0rKTosnbgZYIO2xMQgJdUrOtZGPB0DPtUCgYEAjU51UIN5nZY/EGXk3pvI\n6EQ1V931pJL7YGavpW762KS1m0XOSAzjQ77tRE86Bn+i6+yq6CSeCFfxpVikGvVj\nHqWb0O939N1u6Kb4gPtttLfZzf6maFcPIghVvOKA81654/5NZ5bfXaeiyn7t2czg\nMiTyl5//eq699HExpJgc6lsCgYBHMK0sOcFmMJitUiO3NzV494VDK4FxkPVEEtTP\nX0/8YHw9e/4HRZsDDQ46FJwBgHVTbAxrP77w9fRt6pq3wfG1Tl5AFA1U0d3KCzRn\nuT5/jHzGAchPpifVtdZewjOq5S/uhi1JAVtLnN0cvIF6+9+eSWr8+9jfdmJBHth7\njSqqZQKBgGmtpRLaFavso9DIG8GXFPnusDiQwMWg5i8pr6ncvzZIXWMI3rRps517\nrSHqduRbhMfujB7GshGJiX5YdtmUSTUZSbiWwv9N7pSk9cWMYFZe9ZkHfOCn2XsS\nfM8QK6mcC77CYn0Jk6HsQUc8/eDHSIfNTEQJSei3eAWtTLycM/Au\n-----END RSA PRIVATE KEY-----\n";

/// The allowed algorithms are process-wide, so tests that change them are serialized.
fn allowing(algorithms: u32, encryptions: u32) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    jwe::allow(algorithms, encryptions);
    turn
}

/// Decrypts the token with the key in the variable `txn.key`.
fn open(world: &World, token: &str, key: &str, convert: &str) -> String {
    let set = format!("str({}),set-var(txn.key)", key.replace('"', "\\\"").replace(',', "\",\""));
    assert_ne!(world.eval(&set), "none", "{set}");
    world.eval(&format!("str({token}),{convert}(txn.key)"))
}

/// Every key management algorithm, and one for each content encryption.
const CASES: &[(&str, &str, &str)] = &[
    ("jwt_decrypt_secret", DIR, SECRET_DIR),
    ("jwt_decrypt_secret", KW192, SECRET_192),
    ("jwt_decrypt_secret", GCMKW, SECRET_DIR),
    ("jwt_decrypt_jwk", OAEP, RSA_JWK),
    ("jwt_decrypt_jwk", OAEP256, RSA_JWK),
    ("jwt_decrypt_jwk", EC256, EC256_JWK),
    ("jwt_decrypt_jwk", EC384, EC384_JWK),
    ("jwt_decrypt_jwk", EC521, EC521_JWK),
];

#[test]
fn a_token_opens_with_its_key() {
    let _turn = allowing(u32::MAX, u32::MAX);
    let world = World::new();
    for (convert, token, key) in CASES {
        assert_eq!(open(&world, token, key, convert), "bin:read me", "{token}");
    }
    assert_eq!(open(&world, RSA15, RSA_JWK, "jwt_decrypt_jwk"), "bin:read me");
}

#[test]
fn modified_tokens_and_wrong_keys_fail() {
    let _turn = allowing(u32::MAX, u32::MAX);
    let world = World::new();
    for (convert, token, key) in CASES {
        // Changes one letter of each non-empty part.
        let parts: Vec<&str> = token.split('.').collect();
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let mut changed: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            let other = if part.starts_with('A') { 'B' } else { 'A' };
            changed[at].replace_range(..1, &other.to_string());
            assert_eq!(open(&world, &changed.join("."), key, convert), "none", "part {at} of {token}");
        }
        for (_, other, _) in CASES.iter().filter(|(_, other, _)| other != token) {
            let found = open(&world, other, key, convert);
            // Two tokens share a key, two share another, and a secret may be truncated.
            let opens = |own: &str| key.starts_with(own);
            let shared = CASES.iter().any(|(_, token, own)| token == other && opens(own));
            assert_eq!(found == "none", !shared, "{other} with the key of {token}");
        }
    }
    for token in ["", ".", "a.b.c.d.e", "....", ".....", "e30.e30.e30.e30.e30", &DIR[1..], &format!("{DIR}.")]
    {
        assert_eq!(open(&world, token, SECRET_DIR, "jwt_decrypt_secret"), "none", "{token}");
    }
    for key in [
        "",
        "{}",
        "null",
        r#"{"kty":"oct"}"#,
        r#"{"kty":"RSA"}"#,
        r#"{"kty":"EC","crv":"P-256","d":""}"#,
        "[",
    ] {
        assert_eq!(open(&world, DIR, key, "jwt_decrypt_jwk"), "none", "{key}");
    }
}

#[test]
fn only_allowed_algorithms_are_decrypted() {
    let world = World::new();
    let bit = |names: &[&str], wanted: &str| {
        1 << names.iter().position(|name| *name == wanted).expect("a known name")
    };
    {
        let (algorithms, encryptions) = jwe::DEFAULT_ALLOWED;
        let _turn = allowing(algorithms, encryptions);
        assert_eq!(open(&world, RSA15, RSA_JWK, "jwt_decrypt_jwk"), "none", "RSA1_5 is not for free");
        assert_eq!(open(&world, OAEP, RSA_JWK, "jwt_decrypt_jwk"), "bin:read me");
    }
    {
        let _turn = allowing(bit(jwe::ALGORITHMS, "dir"), u32::MAX);
        assert_eq!(open(&world, DIR, SECRET_DIR, "jwt_decrypt_secret"), "bin:read me");
        assert_eq!(open(&world, GCMKW, SECRET_DIR, "jwt_decrypt_secret"), "none");
    }
    let _turn = allowing(u32::MAX, bit(jwe::ENCRYPTIONS, "A128GCM"));
    assert_eq!(open(&world, DIR, SECRET_DIR, "jwt_decrypt_secret"), "none");
    assert_eq!(open(&world, GCMKW, SECRET_DIR, "jwt_decrypt_secret"), "bin:read me");
}

#[test]
fn certificates_verify_and_decrypt() {
    let _turn = allowing(u32::MAX, u32::MAX);
    let mut world = World::new();
    for (name, pem) in
        [("ec.pem", CERT256), ("ec8.pem", CERT256_PKCS8), ("es512.pem", CERT521), ("rsa.pem", CERTRSA)]
    {
        world.files.insert(name, pem);
    }
    let eval = |token: &str, rest: &str| world.eval(&format!("str({token}),{rest}"));
    assert_eq!(eval(ES512, "jwt_verify_cert(ES512,es512.pem)"), "sint:1");
    assert_eq!(eval(ES512, "jwt_verify_cert(ES256,ec.pem)"), "sint:0");
    assert_eq!(eval(PS256, "jwt_verify_cert(PS256,rsa.pem)"), "sint:1");
    assert_eq!(eval(PS256, "jwt_verify_cert(RS256,rsa.pem)"), "sint:0");
    assert_eq!(eval("a.b.", "jwt_verify_cert(ES512,es512.pem)"), "sint:-3");
    for pem in ["ec.pem", "ec8.pem"] {
        assert_eq!(eval(CERT256_TOKEN, &format!("jwt_decrypt_cert({pem})")), "bin:read me");
    }
    assert_eq!(eval(OAEP, "jwt_decrypt_cert(rsa.pem)"), "bin:read me");
    assert_eq!(eval(OAEP, "jwt_decrypt_cert(ec.pem)"), "none");
    assert_eq!(eval("a.b.", "jwt_verify_cert(none,es512.pem)"), "sint:1");
    // A secret may be longer than necessary, but not shorter.
    let longer = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIj";
    assert_eq!(eval(DIR, &format!("jwt_decrypt_secret({longer})")), "bin:read me");
    assert_eq!(eval(GCMKW, &format!("jwt_decrypt_secret({longer})")), "bin:read me");
    assert_eq!(eval(DIR, &format!("jwt_decrypt_secret({SECRET_192})")), "none");
    // A variable may only name certificates that are already known.
    assert_eq!(world.eval("str(es512.pem),set-var(txn.cert)"), "str:es512.pem");
    assert_eq!(eval(ES512, "jwt_verify_cert(ES512,txn.cert)"), "sint:1");
    assert_eq!(world.eval("str(unknown.pem),set-var(txn.cert)"), "str:unknown.pem");
    assert_eq!(eval(ES512, "jwt_verify_cert(ES512,txn.cert)"), "sint:-5");
    assert_eq!(eval(CERT256_TOKEN, "jwt_decrypt_cert(txn.cert)"), "none");
}

#[test]
fn invalid_keys_are_configuration_errors() {
    let mut world = World::new();
    world.files.insert("es512.pem", CERT521);
    world.files.insert("text", "no PEM at all");
    world.files.insert("bare", "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n");
    for (expression, expected) in [
        ("str(x),jwt_decrypt_secret(...)", "`jwt_decrypt_secret`: the secret is not valid base64"),
        (
            "str(x),jwt_decrypt_jwk(abc)",
            "`jwt_decrypt_jwk`: not a JSON Web Key for decryption: it must be an `oct`, `RSA` or `EC` key with its private part",
        ),
        ("str(x),jwt_decrypt_cert(es512.pem)", "`jwt_decrypt_cert`: the certificate has no private key"),
        ("str(x),jwt_decrypt_cert(text)", "`jwt_decrypt_cert`: `text`: no certificate in PEM format"),
        (
            "str(x),jwt_decrypt_cert(gone)",
            "`jwt_decrypt_cert`: cannot read the certificate `gone`: No such file or directory",
        ),
        (
            "str(x),jwt_verify_cert(ES256,bare)",
            "`jwt_verify_cert`: `bare` contains a public key instead of a certificate; use `jwt_verify` for public keys",
        ),
        (
            "str(x),jwt_verify_cert(ES256,@store/x)",
            "`jwt_verify_cert`: no `crt-store` section loads `@store/x`",
        ),
        (
            "str(x),jwt_verify_cert(HS256,es512.pem)",
            "`jwt_verify_cert`: algorithm `HS256` does not use certificates",
        ),
    ] {
        assert_eq!(world.eval(expression), format!("error: {expected}"), "{expression}");
    }
}
