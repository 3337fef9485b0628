-- A server with a binary log refuses a function that makes ids (ERROR 1418), also to root, until an administrator runs
-- SET GLOBAL log_bin_trust_function_creators = ON. It may be OFF again after this script. Checked first, so that nothing is half
-- installed.
EXECUTE IMMEDIATE IF(@@global.log_bin AND NOT @@global.log_bin_trust_function_creators,
    'SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ''the server has a binary log: first SET GLOBAL log_bin_trust_function_creators = ON''',
    'DO 0');

