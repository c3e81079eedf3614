//! Scripts that broke a rule once, shrunk.

use everlink_auth_sim::{Script, play, run};

/// Whole seeds that broke a rule once, by the machine or by the oracle itself.
#[test]
fn seeds_that_were_found_break_no_rule() {
    let found = [
        1, 4, 7, 10, 22, 23, 24, 34, 40, 274, 296, 370, 644, 1434, 2243, 2463, 3033, 3150, 3545,
        5326, 8597, 24728, 24810, 34370, 34740, 70905, 259946,
    ];
    for seed in found {
        let (_, violation) = run(&Script::from_seed(seed), None);
        assert!(violation.is_none(), "seed {seed}: {violation:?}");
    }
}

/// A token that had lived excused any number of sign-ins that failed after it.
#[test]
fn a_token_that_lived_excuses_failed_sign_ins_once() {
    play(
        "
        seed 1 6 2160 rotating
        +0 busy 0 700674
        +0 all 4 531642
        +60000 person 4 973467
        +0 burst 4 469916
        +0 crash 4 986105
        +0 error 2 911071
        +966140 error 1 297684
        +1498827 lost-answer 3 653612
        +0 call 1 520646
        +0 call 2 77877
        +1663723 all 5 889850
        +137418 person 3 244523
        +0 revoke 5 761089
        +0 refuse 5 423685
        +2336152 call 2 693305
        ",
    );
}

/// A process could not take the lock, and renewed a token that another process renewed under the lock.
#[test]
fn a_shared_token_is_not_renewed_when_the_lock_fails() {
    play(
        "
        seed 7 3 869 rotating
        +0 all 1 813947
        +1873441 call 1 155224
        +0 crash 0 416350
        +1869417 call 2 871228
        +0 step-up 0 345586
        +1636015 store-fails 1 139274
        +60000 call 2 880491
        ",
    );
}

/// The authorization server asked for a pause. The second call during that pause opened a browser.
#[test]
fn a_renewal_that_must_wait_is_no_reason_for_a_sign_in() {
    play(
        "
        seed 7 3 869 rotating
        +0 call 1 313524
        +60000 busy 0 463314
        +0 sleep 1 953120
        +0 call 1 303287
        +46313 call 1 792176
        ",
    );
}

/// The sign-in page of a network redirected the renewal. A browser was opened.
#[test]
fn a_redirected_renewal_is_no_reason_for_a_sign_in() {
    play(
        "
        seed 24 4 15771 rotating
        +0 call 3 173914
        +0 refuse 1 450958
        +60000 redirect 2 731149
        +0 call 1 247452
        ",
    );
}

/// The lock failed for a minute. Then a process sent a refresh token that another one had renewed long before.
#[test]
fn a_lock_that_fails_for_a_minute_costs_no_family() {
    play(
        "
        seed 274 7 41488 rotating
        +0 call 1 472732
        +0 refuse 2 565138
        +350994 burst 6 833514
        +895 store-fails 0 680999
        +0 store-fails 6 174349
        +0 store-fails 3 143799
        +90086528 jump 3 850713
        ",
    );
}

/// After too many sign-ins, a call that needs a wider scope was told to use the same token again, as often as it asked.
#[test]
fn a_step_up_that_must_wait_is_refused() {
    play(
        "
        seed 644 3 498 rotating
        +0 call 2 928758
        +0 error 1 338561
        +0 step-up 2 396527
        +0 person 2 535185
        +0 burst 0 795358
        +0 slow-answer 1 588820
        +0 call 1 338176
        +0 busy 0 339307
        +510007 burst 2 709683
        +3362 call 1 787379
        +0 person 1 110686
        +60000 refuse 2 13953
        +51620 call 0 8027
        +0 call 2 354664
        +0 person 1 468459
        +890072 call 1 56507
        +600000 call 1 758190
        ",
    );
}

/// Something still listened for the browser after a sign-out that came while the sign-in was prepared.
#[test]
fn a_sign_out_while_a_sign_in_is_prepared_closes_the_redirect() {
    play(
        "
        seed 2243 1 600 missing
        +0 call 0 0
        +1100 sign-out 0 0
        ",
    );
}

/// The computer slept longer than a new token lives, before the token was saved. The oracle counted the sign-in that followed as a second one
/// for the same challenge.
#[test]
fn token_that_expires_in_a_sleep_before_its_use_needs_another_sign_in() {
    play(
        "
        seed 10266 2 23096 missing
        +0 call 0 887114
        +11590 sleep 0 915333
        ",
    );
}

/// A renewed token could not be saved and was refused, so the store still had the refresh token that had led to it. The oracle counted the sign-in
/// that followed as needless.
#[test]
fn token_that_is_refused_soon_after_its_renewal_needs_a_sign_in_although_it_was_not_saved() {
    play(
        "
        seed 27374 7 943 fixed
        +0 lost-answer 0 963407
        +0 burst 0 467033
        +0 call 3 508623
        +1000 call 1 851695
        +0 call 5 326410
        +0 call 1 44089
        +0 call 5 583593
        +515065 call 4 223641
        +0 burst 3 6853
        +1000 forget 0 51805
        +0 person 2 134871
        +1000 call 2 179255
        +0 refuse 1 400539
        +0 lost-answer 2 820985
        +1002717 call 3 278293
        +60000 lost-answer 5 507607
        +0 lost-answer 2 129310
        +0 call 4 387905
        +0 call 2 157849
        +0 call 6 927462
        +3045016 redirect 5 682308
        +0 refuse 4 185706
        +0 call 3 594446
        +60000 call 3 928752
        +877 store-fails 3 258589
        +0 store-fails 1 223643
        ",
    );
}

/// A person asked for a sign-in while a wider token was awaited. The application was told to go on with the narrow one.
#[test]
fn sign_in_that_is_asked_for_during_a_step_up_waits_for_the_wider_token() {
    play(
        "
        seed 35674 3 15625 rotating
        +0 call 1 247930
        +60000 step-up 0 832479
        +0 call 1 853520
        +1000 burst 0 164591
        +1000 sign-in 0 990841
        +0 sign-out 0 934237
        ",
    );
}

/// After three failed sign-ins, a token that had long expired was read from the store. It excused three more.
#[test]
fn token_that_had_expired_before_it_was_read_excuses_no_failed_sign_in() {
    play(
        "
        seed 45229 2 86400 missing
        +0 burst 1 208276
        +60000 move 1 366044
        +0 crash 1 446323
        +0 all 1 612970
        +60000 redirect 0 496352
        +91403214 crash 1 632933
        +0 all 1 323997
        +0 busy 0 331985
        +60000 crash 1 150306
        +0 call 0 242373
        +60000 call 0 465323
        +0 busy 1 625279
        +107437 call 0 643874
        ",
    );
}

/// The store failed while a refused refresh token was to be deleted and while the tokens of the next sign-in were to be saved. At their renewal, the refused one was
/// read and used again, and the good ones were lost.
#[test]
fn refused_refresh_token_that_stays_in_the_store_is_not_used_again_after_a_sign_in() {
    play(
        "
        seed 56085 2 681 rotating
        +0 call 0 942072
        +2101341 forget 0 843553
        +0 busy 0 599369
        +0 call 0 820827
        +1000 call 0 196446
        +1000 call 0 996362
        +0 call 1 27540
        +170 store-fails 1 320278
        +0 store-fails 1 315885
        ",
    );
}

/// The oracle counted a token in its last minute before any sign-in, and then allowed nothing for its end. Nothing was wrong in the machine.
#[test]
fn token_that_ends_after_a_failed_sign_in_excuses_that_sign_in() {
    play(
        "
        seed 92894 5 530 missing
        +0 call 4 672595
        +34345 call 0 50472
        +449608 call 0 483688
        +1000 step-up 3 584591
        +0 burst 2 605432
        +0 error 1 135847
        +60000 call 2 317452
        +25377 crash 3 199062
        +0 call 2 344855
        +1000 outage 2 956035
        +510925 call 2 146740
        ",
    );
}

/// A process had taken over six tokens of others, one after the other, before one of them signed in. After that sign-in, it still asked a person when the next
/// such token was refused, and did not renew it first.
#[test]
fn tokens_of_others_are_counted_anew_after_their_sign_in() {
    play(
        "
        seed 188484 6 947 fixed
        +48589 crash 0 52462
        +3840 refuse 4 966339
        +1769880 call 0 615895
        +0 call 2 432934
        +0 call 3 948497
        +1563719 call 3 349566
        +0 lost-answer 3 404250
        +0 crash 3 826313
        +3005658 sleep 1 501976
        +63 burst 3 537971
        +1000 refuse 3 507902
        +0 call 4 70337
        +60000 crash 4 400765
        +0 revoke 0 465478
        +0 call 4 593013
        +1151378 crash 4 966862
        +0 call 5 818000
        +22777 sleep 0 760446
        +1000 redirect 1 509225
        +0 sign-in 4 22860
        +0 call 1 282841
        +1800834 refuse 4 880835
        +0 call 4 719963
        +276 all 0 684426
        +1000 all 5 127995
        +0 crash 5 82195
        +27835 sleep 5 752807
        +0 call 2 770569
        +0 crash 3 679380
        +0 all 5 680331
        +1000 lost-request 2 856847
        +0 move 2 692379
        +1104048 call 3 89941
        +60000 lost-answer 1 367324
        +0 revoke 3 20776
        +0 sleep 4 410624
        +954001 all 1 368911
        +1000 call 1 726343
        +60000 call 3 643036
        +1000 refuse 3 153455
        +0 call 5 934822
        +1000 call 1 866583
        ",
    );
}

/// The token of a process was of use until its end, and a sign-in for a wider scope failed meanwhile. The oracle had counted the token before that sign-in,
/// so that its end excused nothing. Nothing was wrong in the machine.
#[test]
fn token_that_lived_during_a_failed_step_up_excuses_that_step_up() {
    play(
        "
        seed 202012 5 7181 fixed
        +0 call 0 491625
        +60000 all 3 241084
        +1000 step-up 4 743191
        +0 person 4 169750
        +0 call 0 477773
        +0 call 2 174050
        +0 lost-answer 4 928468
        +1000 lost-answer 0 479709
        +0 sign-out 4 757158
        +0 error 2 830363
        +0 refuse 2 250098
        +863 all 1 341726
        +8954976 person 2 656482
        +0 call 2 548741
        +71 call 3 722708
        +6503811 call 2 930279
        ",
    );
}

/// The store failed at a sign-out, and the revocation was redirected. The oracle counted the next sign-in as needless, because the tokens that the person had
/// signed out of still worked. Nothing was wrong in the machine.
#[test]
fn tokens_that_a_sign_out_could_not_delete_are_no_reason_against_a_sign_in() {
    play(
        "
        seed 5224 3 35066 fixed
        +0 burst 1 126078
        +60000 burst 2 625335
        +0 call 0 19889
        +1000 store-fails 0 549305
        +0 redirect 1 453351
        +0 sign-out 0 491660
        ",
    );
}

/// While a process opened the browser for a wider scope, another one signed out of the tokens. The oracle counted the next challenge, of a token that no longer
/// worked, as the one before. Nothing was wrong in the machine.
#[test]
fn token_that_is_refused_during_a_step_up_is_a_challenge_of_its_own() {
    play(
        "
        seed 9847 3 838 rotating
        +0 call 1 653117
        +0 call 1 831263
        +50696 call 2 116371
        +60000 busy 1 490521
        +0 call 0 343858
        +1369349 call 1 512475
        +0 call 0 797319
        +0 call 1 722075
        +910 call 1 842664
        +0 call 1 388626
        +0 call 2 82325
        +1127731 call 2 186045
        +0 call 1 25846
        +0 call 1 993946
        +729516 refuse 2 232610
        +0 call 0 879635
        +1176922 call 0 769194
        +1000 step-up 1 388655
        +37903 person 1 840382
        +0 call 2 490625
        +219 call 0 384982
        +413523 sign-out 0 288023
        +0 call 2 61614
        ",
    );
}

/// The same, when the authorization server had forgotten the client, too: each of the two sign-ins asked the person twice.
#[test]
fn sign_in_that_begins_anew_may_find_the_client_forgotten() {
    play(
        "
        seed 55723 6 524 rotating
        +0 burst 5 124414
        +0 call 1 952223
        +0 call 2 858482
        +1123512 call 1 603470
        +1011343 revoke 2 314165
        +0 call 2 707117
        +1937 all 1 951271
        +1473042 sign-in 2 638907
        +0 burst 2 168615
        +0 all 0 699923
        +1773308 call 2 544607
        +0 call 4 678919
        +0 call 1 93641
        +0 call 3 626340
        +0 call 4 961749
        +0 call 2 891602
        +345996 revoke 1 747083
        +245548 call 0 763924
        +14808 error 4 642553
        +0 error 0 987899
        +0 all 2 668612
        +15625 sign-out 5 99617
        +0 lost-request 1 216605
        +0 call 3 864953
        +951 call 4 605223
        +972110 call 0 590578
        +60000 call 3 903182
        +0 call 0 415072
        +174775 all 5 372782
        +869185 call 2 595236
        +0 person 5 840188
        +1355954 burst 5 398996
        +1064366 call 2 5792
        +0 call 2 378226
        +0 person 3 169378
        +219970 all 1 184421
        +1037030 burst 4 149833
        +0 error 0 710856
        +684716 step-up 2 731590
        +0 call 4 976113
        +780 all 2 514764
        +251 forget 3 475621
        +398817 call 4 122633
        ",
    );
}

/// A token that could not be stored was too narrow, and then refused altogether. The process took over the stored one, which was older.
#[test]
fn process_may_use_an_older_token_after_its_own_was_refused() {
    play(
        "
        seed 57864 5 1245 rotating
        +0 burst 1 303984
        +60000 jump 0 780617
        +1461348 refuse 3 754499
        +0 call 0 62233
        +1000 person 0 637295
        +60000 person 2 4522
        +0 store-fails 4 102385
        +0 step-up 0 268439
        +0 call 4 241151
        +1000 call 3 773291
        +3744 store-fails 3 543308
        +20377 all 3 410842
        ",
    );
}
