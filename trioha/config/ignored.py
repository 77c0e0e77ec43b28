"""Keys of RocketMQ 4.9.8 that have no meaning here, so that a real ``broker.conf`` loads.

Each is accepted with one note that says why. A few would change what the broker promises (access
control, encryption, another log format); those are accepted only with the one value that is true
here, because a broker that quietly ignored them would be worse than one that does not start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs


@attrs.frozen
class Ignored:
    reason: str
    only: tuple[str, ...] = ()
    """Values that do no harm, in lower case; empty: any value."""


_NO_POOLS = "one event loop serves every request, there are no thread pools"
_NO_QUEUES = "requests wait in the kernel, there are no queues to size"
_SOCKETS = "sockets and buffers need no tuning here"
_FLUSH = "there is one way to write segments: mapped, without pool or warm-up"
_CLEANING = "old segments go by age and disk ratio, nothing holds them back"
_LAYOUT = "this file lies at its usual place under storePathRootDir"
_STATISTICS = "there are no such statistics"
_REGISTER = "registrations are complete and periodic in any case"
_FILTERS = "SQL92 filters are evaluated when messages are pulled, without bit maps"
_SCHEDULE = "delayed messages are delivered by deadline, there is nothing to tune"
_TIMERS = "timer messages are found in their queue, without wheel and log of their own"
_UNKNOWN_THERE = "RocketMQ 4.9 knows no such key and ignores it too"
_DLEDGER = "a Raft log is an ordinary commitlog here, sent in batches"
_MISSING = "not available, and a broker without it would not do what the file asks for"


_AUTH_PROVIDERS = (
    "",
    *(
        f"org.apache.rocketmq.auth.{kind}.provider.{name}".lower()
        for kind, name in (
            ("authentication", "DefaultAuthenticationProvider"),
            ("authentication", "LocalAuthenticationMetadataProvider"),
            ("authorization", "DefaultAuthorizationProvider"),
            ("authorization", "LocalAuthorizationMetadataProvider"),
        )
    ),
)


def _ignored(reason: str, keys: str, only: Iterable[str] = ()) -> dict[str, Ignored]:
    return {key: Ignored(reason, tuple(only)) for key in keys.split()}


_SHARED: dict[str, Ignored] = {
    **_ignored(
        _SOCKETS,
        "serverSocketSndBufSize serverSocketRcvBufSize writeBufferHighWaterMark"
        " writeBufferLowWaterMark serverSocketBacklog serverPooledByteBufAllocatorEnable"
        " useEpollNativeSelector clientSocketSndBufSize clientSocketRcvBufSize"
        " clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout connectTimeoutMillis"
        " channelNotActiveInterval clientChannelMaxIdleTimeSeconds",
    ),
    **_ignored(
        _NO_POOLS,
        "serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads"
        " serverOnewaySemaphoreValue serverAsyncSemaphoreValue clientWorkerThreads"
        " clientCallbackExecutorThreads clientOnewaySemaphoreValue clientAsyncSemaphoreValue",
    ),
    **_ignored("there is no installation directory", "rocketmqHome"),
    **_ignored("settings cannot be changed over the wire", "configBlackList"),
    **_ignored("not available by this name: write tls.enable=true", "useTLS", ["false"]),
    **_ignored("there is no test certificate: name a real one", "tls.test.mode.enable", ["false"]),
    **_ignored("a certificate that is asked for is always checked", "tls.server.authClient"),
}

IGNORED_BY_BROKER: Mapping[str, Ignored] = {
    **_SHARED,
    **_ignored(
        _NO_POOLS,
        "sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums"
        " processReplyMessageThreadPoolNums queryMessageThreadPoolNums adminBrokerThreadPoolNums"
        " clientManageThreadPoolNums consumerManageThreadPoolNums heartbeatThreadPoolNums"
        " endTransactionThreadPoolNums",
    ),
    **_ignored(
        _NO_QUEUES,
        "sendThreadPoolQueueCapacity putThreadPoolQueueCapacity pullThreadPoolQueueCapacity"
        " replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity"
        " clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity"
        " heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity"
        " startAcceptSendRequestTimeStamp",
    ),
    **_ignored(
        "sends that waited for a slow disk are rejected by waitTimeMillsInSendQueue",
        "osPageCacheBusyTimeOutMills",
    ),
    **_ignored(
        _FLUSH,
        "useReentrantLockWhenPutMessage flushCommitLogTimed commitIntervalCommitLog"
        " commitCommitLogLeastPages commitCommitLogThoroughInterval"
        " flushLeastPagesWhenWarmMapedFile flushConsumeQueueLeastPages"
        " flushConsumeQueueThoroughInterval flushCommitLogLeastPages"
        " flushCommitLogThoroughInterval warmMapedFileEnable transientStorePoolEnable"
        " transientStorePoolSize fastFailIfNoBufferInStorePool transferMsgByHeap"
        " putMsgIndexHightWater debugLockEnable highSpeedMode",
    ),
    **_ignored(
        _CLEANING,
        "deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval"
        " destroyMapedFileIntervalForcibly redeleteHangedFileInterval cleanFileForciblyEnable",
    ),
    **_ignored(_LAYOUT, "storePathConsumeQueue storePathIndex storeCheckpoint abortFile"),
    **_ignored(
        _STATISTICS,
        "commercialEnable commercialTimerCount commercialTransCount commercialBigCount"
        " commercialBaseCount enableDetailStat autoDeleteUnusedStats isolateLogEnable"
        " diskFallRecorded enableScheduleMessageStats flushConsumerOffsetHistoryInterval"
        " disableConsumeIfConsumerReadSlowly consumerFallbehindThreshold",
    ),
    **_ignored(_REGISTER, "forceRegister compressedRegister"),
    **_ignored(
        _FILTERS,
        "enableCalcFilterBitMap expectConsumerNumUseFilter"
        " maxErrorRateOfBloomFilter filterDataCleanTimeSpan filterServerNums",
    ),
    **_ignored(
        _SCHEDULE,
        "maxDelayTime enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit"
        " scheduleAsyncDeliverMaxResendNum2Blocked",
    ),
    **_ignored(
        _TIMERS,
        "mappedFileSizeTimerLog timerFlushIntervalMs timerGetMessageThreadNum"
        " timerPutMessageThreadNum timerEnableDisruptor timerEnableCheckMetrics"
        " timerCheckMetricsWhen timerSkipUnknownError timerWarmEnable timerEnableRetryUntilSuccess"
        " timerMetricSmallThreshold timerProgressLogIntervalMs timerColdDataCheckIntervalMs",
    ),
    **_ignored(
        f"a limit of timer messages that are due in one slot is {_MISSING}",
        "timerCongestNumEachSlot",
        ["2147483647"],
    ),
    **_ignored(
        "both kinds of retry topics are always read",
        "retrieveMessageFromPopRetryTopicV1",
        ["true"],
    ),
    **_ignored(f"a halt of timer messages is {_MISSING}", "timerStopEnqueue", ["false"]),
    **_ignored(f"a halt of timer messages is {_MISSING}", "timerStopDequeue", ["false"]),
    **_ignored(
        f"timer messages by delay level are {_MISSING}", "timerInterceptDelayLevel", ["false"]
    ),
    **_ignored(
        _UNKNOWN_THERE,
        "mapedFileSizeCommitLog mapedFileSizeConsumeQueue checkTransactionMessageEnable"
        " autoCreateTopic brokerIP",
    ),
    **_ignored("message traces go to RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName"),
    **_ignored("replies are not stored", "storeReplyMessageEnable"),
    **_ignored(
        _DLEDGER,
        "storePathDLedgerCommitLog isEnableBatchPush enableBatchPush",
    ),
    **_ignored(f"duplication is {_MISSING}", "duplicationEnable", ["false"]),
    **_ignored(f"light message queues are {_MISSING}", "enableLmq enableMultiDispatch", ["false"]),
    **_ignored("light message queues are not available", "maxLmqConsumeQueueNum"),
    **_ignored(f"consume queue extensions are {_MISSING}", "enableConsumeQueueExt", ["false"]),
    **_ignored(
        "consume queue extensions are not available",
        "mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt",
    ),
    **_ignored(
        f"the address server is {_MISSING}: set namesrvAddr",
        "fetchNamesrvAddrByAddressServer",
        ["false"],
    ),
    **_ignored(
        "users and policies of RocketMQ 5 are in auth.json, and each request is checked",
        "authConfigName userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond"
        " aclCacheMaxNum aclCacheExpiredSecond aclCacheRefreshSecond"
        " statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond"
        " statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond"
        " authenticationStrategy authorizationStrategy",
    ),
    **_ignored(
        f"another provider is {_MISSING}",
        "authenticationProvider authenticationMetadataProvider authorizationProvider"
        " authorizationMetadataProvider",
        _AUTH_PROVIDERS,
    ),
    **_ignored(
        f"the migration of plain_acl.yml is {_MISSING}: give aclEnable, or make the users",
        "migrateAuthFromV1Enabled",
        ["false"],
    ),
    **_ignored(
        f"a request that needs no user is {_MISSING}",
        "authenticationWhitelist authorizationWhitelist",
        [""],
    ),
    **_ignored(f"a store plug-in is {_MISSING}", "messageStorePlugIn", [""]),
    **_ignored(f"a second log path is {_MISSING}", "readOnlyCommitLogStorePaths", [""]),
}

IGNORED_BY_NAMESRV: Mapping[str, Ignored] = {
    **_SHARED,
    **_ignored("settings are not written back", "configStorePath"),
    **_ignored("there is one environment", "productEnvName"),
    **_ignored("the cluster test mode is not available", "clusterTest"),
}
